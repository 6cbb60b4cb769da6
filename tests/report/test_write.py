"""The file: what stands in it for every kind of model, its size, and that no label can act."""

import builtins
import html
import json
import re

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.metrics import pairwise_distances
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearfar
from nearfar.analysis import study as study_module
from nearfar.analysis import suspicion as suspicion_module
from nearfar.errors import InvalidInputError, MissingExtraError
from nearfar.registry import ENTRIES
from nearfar.report import explore, write_report
from nearfar.report import material as material_module
from nearfar.report import write as write_module
from tests.registered import instance

SECTIONS = {"errors", "faithful", "spectrum", "features", "convergence"}
RNG = np.random.default_rng(0)
Y = np.arange(60) % 3
X = RNG.normal(size=(60, 3)) + 1.5 * np.eye(3)[Y]
D = pairwise_distances(X)
TEST = np.arange(60) % 4 == 0
QUICK = {"max_iter": 3, "tol": 10.0}


def sensors():
    graph = nearfar.NeighborhoodGraph.from_points(X[:, :2], n_neighbors=8, angles=False)
    edges = (graph.heads, graph.tails, graph.lengths, 60)
    return nearfar.SensorLocalization(random_state=0).fit(
        nearfar.NeighborhoodGraph.from_edges(*edges)
    )


def pairs():
    tuples, kinds = nearfar.make_pairs(X, Y, random_state=0)
    return nearfar.PairClassifier(nearfar.MMC(**QUICK)).fit(tuples, kinds)


def learned(name, **parameters):
    return lambda: getattr(nearfar, name)(**parameters).fit(X[~TEST], Y[~TEST])


def laid_out(name, data=X, **parameters):
    return lambda: getattr(nearfar, name)(**parameters).fit(data)


LABELLED = {"X": X, "y": Y, "test": TEST}
LINEAR = {"errors", "spectrum", "features", "convergence"}
KERNEL = LINEAR - {"features"}
PLACED = {"spectrum", "convergence"}
UNFOLDED = PLACED | {"faithful"}


def usual(entry):
    """How a model is made, what it is shown on, and the sections that apply."""
    model = instance(getattr(nearfar, entry.name), **QUICK)
    if entry.kind in ("unfolding", "scaling"):
        return lambda: model.fit(X), {"X": X}, UNFOLDED
    sections = KERNEL if entry.kernel else LINEAR
    return lambda: model.fit(X[~TEST], Y[~TEST]), LABELLED, sections


# The same for the models that are not made or shown in the usual way.
SPECIAL = {
    "EnergyClassifier": (
        lambda: nearfar.EnergyClassifier(nearfar.LMNN(**QUICK)).fit(X[~TEST], Y[~TEST]),
        LABELLED,
        LINEAR,
    ),
    "KernelMetric": (learned("KernelMetric"), LABELLED, KERNEL - {"convergence"}),
    "KernelPOLA": (learned("KernelPOLA", max_iter=2, n_pairs=50), LABELLED, KERNEL),
    "LandmarkMVU": (laid_out("LandmarkMVU", n_neighbors=8, random_state=0), {}, UNFOLDED),
    "LinearMetric": (
        lambda: nearfar.as_metric(PCA(2).fit(X)),
        LABELLED,
        LINEAR - {"convergence"},
    ),
    "LocalMDS": (laid_out("LocalMDS", n_neighbors=8, **QUICK), {"X": X}, UNFOLDED),
    "MVU": (laid_out("MVU", n_neighbors=4, constraints="slack", tol=1e-2), {}, UNFOLDED),
    "MetricMDS": (laid_out("MetricMDS", data=D, metric="precomputed", **QUICK), {}, PLACED),
    "NearestNeighborClassifier": (
        lambda: nearfar.NearestNeighborClassifier(nearfar.RCA()).fit(X[~TEST], Y[~TEST]),
        LABELLED,
        LINEAR,
    ),
    "NonmetricMDS": (laid_out("NonmetricMDS", **QUICK), {"X": X, "y": Y}, UNFOLDED | {"errors"}),
    "POLA": (learned("POLA", max_iter=2, n_pairs=50), LABELLED, LINEAR),
    "PairClassifier": (pairs, LABELLED, LINEAR),
    "SCML": (learned("SCML", random_state=0), LABELLED, LINEAR),
    "SensorLocalization": (sensors, {}, PLACED),
    "VariationalMVU": (laid_out("VariationalMVU", n_neighbors=8), {"X": X[:20]}, UNFOLDED),
}
KINDS = {entry.name: entry.kind for entry in ENTRIES}
MODELS = {entry.name: SPECIAL.get(entry.name) or usual(entry) for entry in ENTRIES}


@pytest.mark.filterwarnings("ignore::nearfar.errors.NearfarWarning")
@pytest.mark.parametrize("name", sorted(MODELS))
def test_what_applies_to_a_model_is_in_its_report(written, name):
    make, shown, expected = MODELS[name]
    report = written(make(), **shown)
    found = set(re.findall(r'<section id="(\w+)">', report.html))
    assert found & SECTIONS == expected
    assert {"learned", "map", "reproduce"} <= found
    # Every section but the first can be reached from the top.
    linked = set(re.findall(r'href="#(\w+)"', report.html)) - {"main"}
    assert linked == found - {"learned"}
    assert f"nearfar.{name}(" in report.text
    data = report.data
    rows = report.rows
    assert len(rows) == data["nShown"] == data["nRows"] == len(set(rows))
    for view in data["views"]:
        assert report.places(view).shape == (len(rows), 2)
        assert np.isfinite(report.places(view)).all()
    slides = KINDS[name] not in ("unfolding", "scaling") and name != "MultiMetricLMNN"
    assert (data["slider"] is not None) == slides
    assert len(data["views"]) == 11 or not slides
    # Shares of features are of one linear map.
    assert (data["metric"] is not None) == (slides and "features" in expected)


def test_data_come_back(written, digits_report_example):
    """Labels, places, neighbours, columns and pictures, each against what it was made of."""
    given = digits_report_example
    report = written(
        given.model,
        given.X,
        given.y,
        test=given.test,
        feature_names=given.names,
        target_name="digit",
        columns={"parity": np.where(given.y % 2, "odd", "even")},
        rows=[7, 3],
    )
    data, rows = report.data, report.rows
    assert sorted(rows) == list(range(300))
    assert rows[:2].tolist() == [7, 3]
    assert data["lists"][0] == {
        "name": "chosen",
        "note": "",
        "rows": [0, 1],
        "total": 2,
        "said": None,
    }
    codes = report.codes(data["labels"]["codes"])
    assert [data["labels"]["texts"][c] for c in codes] == [str(label) for label in given.y[rows]]
    assert data["labels"]["name"] == "digit"
    np.testing.assert_array_equal(report.codes(data["heldOut"]), given.test[rows])
    # Distances between places are at most the distances, as of every projection.
    images = given.model.transform(given.X)[rows]
    scale = given.X[~given.test].var(axis=0).sum() / images[~given.test[rows]].var(axis=0).sum()
    for view, points in ((0, given.X[rows]), (10, np.sqrt(scale) * images)):
        apart = pairwise_distances(report.places(data["views"][view]))
        assert (apart <= pairwise_distances(points) * (1 + 1e-3) + 1e-2).all()
    for name, points in (("before", given.X[rows]), ("after", images)):
        found = data["neighbors"][name]
        near = report.numbers(found["rows"], "<u4").reshape(-1, found["count"])
        distances = report.numbers(found["distances"], "<f4").reshape(near.shape)
        assert not given.test[rows[near]].any()
        whole = pairwise_distances(points)
        whole[:, given.test[rows]] = np.inf
        np.fill_diagonal(whole, np.inf)
        expected = np.sort(whole, axis=1)[:, : found["count"]]
        np.testing.assert_allclose(distances, expected, rtol=1e-4)
    by_name = {column["name"]: column for column in data["columns"]}
    parity = by_name["parity"]
    codes = report.codes(parity["codes"])
    assert [parity["texts"][c] for c in codes] == np.where(given.y % 2, "odd", "even")[
        rows
    ].tolist()
    for name in ("pixel_3_4", "pixel_2_5"):
        values = report.numbers(by_name[name]["numbers"], "<f4")
        np.testing.assert_array_equal(values, given.X[rows, given.names.index(name)])
    assert data["images"]["shape"] == [8, 8]
    grey = report.numbers(data["images"]["grey"], "u1").reshape(-1, 64)
    np.testing.assert_array_equal(grey, np.round(255 * given.X[rows] / 16))
    for which, model in (("before", None), ("after", given.model)):
        votes, tested = given.X[~given.test], given.X[given.test]
        if model is not None:
            votes, tested = model.transform(votes), model.transform(tested)
        predicted = nearfar.evaluation.knn_predict(votes, given.y[~given.test], tested, 3)
        expected = dict(zip(np.flatnonzero(given.test), predicted, strict=True))
        found = report.codes(data["tested"][which])
        texts = [data["tested"]["texts"][code] for code in found]
        assert texts == [str(expected[r]) if r in expected else "" for r in rows]
        wrong = report.codes(data["tested"][f"{which}Wrong"])
        assert wrong.tolist() == [r in expected and expected[r] != given.y[r] for r in rows]
        step = 0 if which == "before" else 10
        bits = report.numbers(data["slider"]["wrong"], "<u2") >> step & 1
        assert bits.tolist() == wrong.tolist()
        assert data["slider"]["errors"][step] == pytest.approx(wrong.sum() / 100, abs=1e-6)


def test_numbers_on_the_page(written, wine_report_example):
    given = wine_report_example
    options = {"test": given.test, "feature_names": given.names}
    text = written(given.model, given.X, given.y, **options).text
    votes = given.X[~given.test], given.y[~given.test], given.X[given.test], given.y[given.test]
    error = nearfar.evaluation.knn_error(given.model, *votes)
    before = nearfar.evaluation.knn_error(None, *votes)
    assert f"Error after learning {100 * error:.2f} % {100 * before:.2f} % before" in text
    assert "118 training rows, 60 held out; 3 classes" in text
    images = [given.model.transform(votes[i]) for i in (0, 2)]
    wrong_before = nearfar.evaluation.knn_predict(votes[0], votes[1], votes[2]) != votes[3]
    wrong_after = nearfar.evaluation.knn_predict(images[0], votes[1], images[1]) != votes[3]
    fixed, broken = (wrong_before & ~wrong_after).sum(), (~wrong_before & wrong_after).sum()
    low, high = binomtest(int(wrong_before.sum()), 60).proportion_ci(method="wilson")
    row = f"{wrong_before.sum()} {100 * low:.2f} % – {100 * high:.2f} % {fixed} {broken} < 0.0001"
    assert f"Euclidean {100 * before:.2f} % {row}" in text
    for name in ("standardised", "LDA", "shrunk LDA", "LMNN (this model)", "LMNN, standardised"):
        assert f" {name} " in text
    split = nearfar.evaluation.Split(*votes)
    expected = nearfar.evaluation.compare_fitted(given.model, split).verdict
    assert expected.kind == "keep"
    assert text.count(expected.sentence) == 2
    assert f"objective is {given.model.objective_:.6g}" in text
    assert f"{given.model.n_iter_} iterations" in text
    assert "proline" in text
    for package in (nearfar, np):
        assert package.__version__ in text


def test_a_harmful_model_looks_harmful(written):
    random = np.random.default_rng(0)
    X = np.r_[random.normal(0, 1, (100, 3)), random.normal(9, 1, (100, 3))]
    model = nearfar.LinearMetric([[1.0, -1.0, 0.0]]).fit(X)
    report = written(model, X, np.arange(200) // 100, test=np.arange(200) % 2 == 0)
    assert "Do not use LinearMetric: learning makes it worse" in report.text
    assert '<p class="verdict harmful">' in report.html


def test_what_is_not_held_out_is_called_that(written, wine_report_example):
    given = wine_report_example
    text = written(given.model, given.X, given.y).text
    assert "No row was held out." in text
    assert "No verdict: no row was held out." in text
    assert "No row was held out." not in written(given.model, given.X, given.y, test=[0, 1]).text


EVIL = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"quoted\" and 'single' & <b>bold</b>",
    "<!--<script>",
    "{{ 7 * 7 }} {% raw %}",
    "🦊 emoji é \u2028 \u202e",
    "\ud800 half a pair",
]


def test_no_text_becomes_markup(written):
    names = [EVIL[0], EVIL[1], EVIL[2]]
    y = np.array(EVIL, dtype=object)[np.arange(60) % len(EVIL)]
    model = nearfar.RCA().fit(X, Y)
    columns = {EVIL[1]: y, EVIL[5]: np.arange(60)}
    report = written(
        model,
        X,
        y,
        test=TEST,
        feature_names=names,
        title=EVIL[0],
        target_name=EVIL[2],
        columns=columns,
    )
    markup = re.sub(r"<(script|style)[ >].*?</\1>", "", report.html, flags=re.DOTALL)
    assert report.html.count("<script") == report.html.count("</script>") == 2
    assert set(re.findall(r"<img [^>]*", markup)) == set()
    assert "<b>" not in markup
    assert "49 " not in re.findall(r"<h1>(.*?)</h1>", markup)[0]
    assert html.escape(EVIL[0]) in markup.replace("&#39;", "&#x27;").replace("&#34;", "&quot;")
    data = report.data
    shown = [text.encode("utf-8", "replace").decode()[:39] for text in EVIL]
    assert sorted(text[:39] for text in data["labels"]["texts"]) == sorted(shown)


def test_nothing_is_fetched_and_only_its_own_program_may_run(written):
    report = written(nearfar.RCA().fit(X, Y), X, Y)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', report.html)[1]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy
    outside = re.findall(r"""(?:src|href|action)=["']?(?!data:|#)([^"'\s>]+)""", report.html)
    assert outside == []
    assert not re.findall(r"https?://", report.html)
    assert not re.findall(r"\sstyle=", report.html)


@pytest.mark.slow
def test_the_worst_case_stays_below_fifteen_megabytes(written, rng):
    """Many rows, features and columns, every text long, different and of characters to escape."""
    n, d = 6_000, 300
    points = rng.normal(size=(n, d)).astype(np.float32)
    labels = np.array([f"{i} {'<🦊' * 200}" for i in range(n)])
    model = nearfar.as_metric(PCA(2).fit(points[:1000]))
    report = written(
        model,
        points,
        labels,
        test=np.arange(n) % 2 == 0,
        feature_names=[f"{j} {'&' * 500}" for j in range(d)],
        columns={f"{c} {'>' * 300}": labels[::-1] for c in range(8)},
        title="<" * 10_000,
        image_shape=(15, 20),
        n_neighbors=15,
    )
    size = len(report.html.encode())
    assert 1_000_000 < size < 15_000_000
    assert 100 < report.data["nShown"] < n
    assert f"{report.data['nShown']:,} of the 6,000 rows are drawn" in report.text


def test_a_report_that_cannot_be_small_is_refused_and_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(write_module, "MOST_BYTES", 10_000)
    path = tmp_path / "report.html"
    with pytest.raises(InvalidInputError, match=r"10000 are the most\. Shorten the names"):
        write_report(nearfar.RCA().fit(X, Y), path, X)
    assert list(tmp_path.iterdir()) == []


def test_a_sample_is_said_to_be_one(written, monkeypatch):
    monkeypatch.setattr(material_module, "SHOWN", 10)
    monkeypatch.setattr(study_module, "TESTED", 8)
    report = written(nearfar.RCA().fit(X, Y), X, Y, test=TEST)
    n = report.data["nShown"]
    assert 10 <= n < 60
    assert f"{n} of the 60 rows are drawn" in report.text
    assert "the same 8 rows, drawn from 15 at random" in report.text
    assert len(report.rows) > n  # neighbours that are named, but not drawn
    # A test row that was not tested has no outcome.
    known = report.codes(report.data["tested"]["after"]) > 0
    assert known.sum() <= 8
    assert TEST[report.rows[:n]][known].all()


@pytest.mark.slow
def test_of_many_rows_some_are_drawn(written, rng):
    points = rng.normal(size=(150_000, 2)).astype(np.float32)
    model = nearfar.as_metric(PCA(2).fit(points[:1000]))
    report = written(model, points, points[:, 0] > 0, test=np.arange(len(points)) % 3 == 0)
    assert len(report.html.encode()) < 15_000_000
    assert report.data["nRows"] == 150_000
    assert "of the 150,000 rows are drawn" in report.text
    assert "drawn from 50,000 at random" in report.text


@pytest.mark.slow
def test_large_pictures_are_made_smaller(written):
    """64 x 64 pictures that are 4 x 4 blocks of one grey, reduced to some multiple of these."""
    blocks = RNG.integers(0, 255, size=(700, 16, 16)).astype(float)
    pictures = blocks.repeat(4, axis=1).repeat(4, axis=2)
    X = pictures.reshape(700, -1)
    model = nearfar.LinearMetric(PCA(2).fit(X).components_).fit(X)
    report = written(model, X, image_shape=(64, 64))
    found = report.data["images"]
    assert found["shape"] == [32, 32]
    grey = report.numbers(found["grey"], "u1").reshape(-1, 32, 32)
    low, high = blocks.min(), blocks.max()
    expected = np.round(255 * (blocks - low) / (high - low))[report.rows].repeat(2, 1).repeat(2, 2)
    np.testing.assert_array_equal(grey, expected)


def test_pictures_are_found_by_the_names_of_pixels(written):
    data = load_digits()
    X = data.data[:300]
    model = nearfar.as_metric(PCA(2).fit(X))
    names = {"feature_names": data.feature_names}
    assert written(model, X, **names).data["images"]["shape"] == [8, 8]
    assert written(model, X).data["images"] is None
    with pytest.raises(
        InvalidInputError, match="image_shape=8 x 9 is 72 features; the points have 64"
    ):
        written(model, X, image_shape=(8, 9))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": {"age": [1, 2]}}, r"column 'age' must have a value for each of the 60 rows"),
        ({"rows": [60]}, "rows must be distinct row numbers from 0 to 59; got 60"),
        ({"rows": list(range(51))}, "rows names 51 rows .* at most 50 have room"),
    ],
)
def test_what_does_not_fit_is_refused(written, options, message):
    with pytest.raises(InvalidInputError, match=message):
        written(nearfar.RCA().fit(X, Y), X, Y, **options)


def test_the_same_call_gives_the_same_bytes(written, wine_report_example):
    given = wine_report_example
    first, second = (written(given.model, given.X, given.y, test=given.test) for _ in range(2))
    assert first.html == second.html


def test_a_report_is_shown_in_a_frame_and_saved(tmp_path):
    """The page is text of an attribute: no quote or tag of it can end the attribute."""
    report = explore(nearfar.RCA().fit(X, Y), X, Y, title='"><script>alert(1)</script>')
    frame = report._repr_html_()
    content = re.fullmatch(
        r'<iframe srcdoc="([^"<>]*)" width="100%" height="800"'
        r' sandbox="allow-scripts allow-downloads" title="nearfar report"'
        r' style="border: 0"></iframe>',
        frame,
    )[1]
    assert html.unescape(content) == report.page
    report.save(tmp_path / "page.html")
    size = (tmp_path / "page.html").stat().st_size
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == report.page
    assert repr(report) == f"Report({size / 1e6:.2f} MB of HTML)"


def test_suspicious_labels_are_listed(written, monkeypatch):
    """A row that is given another label is alone on the list; a sample is said to be one."""
    clouds = 10 * np.eye(3)[Y] + RNG.normal(size=(60, 3))
    labels = np.where(np.arange(60) == 7, 0, Y)
    model = make_pipeline(StandardScaler(), nearfar.LMNN()).fit(clouds, labels)
    listed = written(model, clouds, labels).data["lists"][-1]
    assert (listed["name"], listed["total"], listed["said"]) == ("suspicious labels", 1, ["100%"])
    assert listed["note"].startswith("Training rows of whose 10 nearest rows at least half have")
    assert "in the order of the dual weights of their triplets. Worth a look" in listed["note"]
    listed = written(nearfar.RCA().fit(clouds, labels), clouds, labels).data["lists"][-1]
    assert listed["total"] == 1
    assert "dual weights" not in listed["note"]
    monkeypatch.setattr(suspicion_module, "PAIRS", 60 * 20)
    listed = written(model, clouds, labels).data["lists"][-1]
    assert listed["note"].endswith(" 20 of 60 training rows were examined.")


def test_before_learning_is_the_distance_that_comes_to_the_learner(written, wine_report_example):
    """Of a pipeline, the error before is that of standardised features; the table has both."""
    given = wine_report_example
    train = given.X[~given.test], given.y[~given.test]
    model = make_pipeline(StandardScaler(), nearfar.LMNN()).fit(*train)
    report = written(model, given.X, given.y, test=given.test, feature_names=given.names)
    held_out = given.X[given.test], given.y[given.test]
    raw, scaled = (nearfar.evaluation.knn_error(m, *train, *held_out) for m in (None, model[0]))
    assert raw > scaled
    assert f"{100 * scaled:.2f} % before, by 3 neighbours" in report.text
    assert f" Euclidean {100 * raw:.2f} % " in report.text
    assert "features as the LMNN saw them, after StandardScaler" in report.text
    assert report.data["slider"]["errors"][0] == pytest.approx(scaled, abs=1e-6)
    # Features that are standardised have equal shares before learning: 1 / 13.
    assert report.text.count(" 7.7 % ") >= 13


def test_without_jinja2_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    real = builtins.__import__

    def fail(name, *rest):
        if name == "jinja2":
            raise ImportError
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fail)
    message = r"^jinja2 is not installed; run: pip install .*report"
    with pytest.raises(MissingExtraError, match=message):
        write_report(nearfar.RCA().fit(X, Y), tmp_path / "report.html", X)


def test_numbers_that_are_not_finite_are_no_json(written):
    """A column may hold NaN and infinity: as bytes they need no words for it."""
    column = np.where(np.arange(60) % 2, np.nan, np.inf)
    report = written(nearfar.RCA().fit(X, Y), X, columns={"odd": column})
    json.loads(json.dumps(report.data, allow_nan=False))
    values = report.numbers(report.data["columns"][0]["numbers"], "<f4")
    np.testing.assert_array_equal(values, column[report.rows])


@pytest.mark.parametrize("name", ["MultiMetricLMNN", "LMNN"])
def test_a_table_keeps_its_columns(name, written):
    """Rows of a table are taken by position, and the model gets the names that it was fitted to."""
    table, y = load_wine(return_X_y=True, as_frame=True)
    table = table.set_index(table.index + 1000)
    test = np.arange(len(table)) % 3 == 0
    model = getattr(nearfar, name)(**QUICK)
    for estimator in (model, nearfar.NearestNeighborClassifier(model)):
        estimator.fit(table[~test], y.to_numpy()[~test])
        assert "alcohol" in written(estimator, table, y, test=test).text


def test_pictures_of_a_linear_kernel_are_of_its_own_map(written):
    """Its images have fewer dimensions than the map of the features, which is square."""
    pixels, y = load_digits(return_X_y=True)
    pixels, y = pixels[:60] / 16, y[:60] % 3
    model = nearfar.KernelLMNN(kernel="linear", max_iter=20, tol=10.0).fit(pixels, y)
    assert "axis 2" in written(model, pixels, y, image_shape=(8, 8)).text


def test_verbose_says_what_is_done(tmp_path, capsys):
    X, y = load_wine(return_X_y=True)
    model = nearfar.LMNN().fit(X, y)
    write_report(model, tmp_path / "quiet.html", X, y)
    assert capsys.readouterr() == ("", "")
    write_report(model, tmp_path / "told.html", X, y, verbose=1)
    assert capsys.readouterr().err.splitlines() == [
        "report: searching neighbours",
        "report: measuring errors, with a second fit for comparison",
        "report: writing the page",
    ]
