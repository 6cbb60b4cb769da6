"""Table 1: the command, what is saved, the data, and what the page says of it."""

import json
import math

import numpy as np
import pytest
from scipy import sparse

from benchmarks import common
from benchmarks.papers import lmnn_table1, table1_data, table1_methods, table1_page, table1_paper
from nearfar import NearestNeighborClassifier


def row(method, errors, data="iris", remark=""):
    splits = [[number, error, 0.5, 0.25, remark] for number, error in enumerate(errors)]
    return {"data": data, "method": method, "stamps": ["abc today cpu"], "splits": splits}


def record(*rows):
    machine = {"cpu": "a chip", "cores": 2, "memory_gb": 8, "system": "Linux x86_64"}
    return {"machine": machine, "versions": {"numpy": "2"}, "rows": list(rows)}


# -- the command ---


def test_smoke_run_passes(capsys, monkeypatch):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    assert lmnn_table1.main(["--smoke"]) == 0
    printed = capsys.readouterr().out
    assert "failed" not in printed
    assert "106 training and 46 test points in 3 classes. All 178 rows" in printed
    _, overview, goal, _, wine, iris, _ = printed.split("\n## ")
    assert overview.startswith("All rows")
    assert goal.startswith("The defaults against the paper")
    assert " of 8 are." in goal  # four rows of two sets
    for method in table1_methods.METHODS:
        for data, section in (("wine", wine), ("iris", iris)):
            expected = table1_methods.applies(method, data)
            assert (f"| {table1_page.TITLES[method]} |" in section) is expected


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, capsys):
    places = ["--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    some = [*places, "--machine", "here", "--data", "iris", "--methods", "euclidean,pca"]
    assert lmnn_table1.main([*some, "--splits", "1"]) == 0
    path = tmp_path / "lmnn_table1-here.json"
    first = json.loads(path.read_text())["rows"]
    capsys.readouterr()
    assert lmnn_table1.main([*some, "--splits", "2"]) == 0
    assert capsys.readouterr().out.count("iris ") == 2  # the second split of both methods
    second = json.loads(path.read_text())["rows"]
    assert [r["splits"][0] for r in second] == [r["splits"][0] for r in first]
    assert [len(r["splits"]) for r in second] == [2, 2]


def test_processes_give_what_one_gives(tmp_path):
    """The error of every split; only the seconds differ."""
    found = []
    for jobs in ("1", "2"):
        folder = tmp_path / jobs
        places = ["--results", str(folder), "--page", str(folder / "page.md")]
        some = ["--data", "iris", "--methods", "lda,lmnn", "--splits", "3", "--jobs", jobs]
        assert lmnn_table1.main([*places, *some, "--machine", "x"]) == 0
        rows = json.loads((folder / "lmnn_table1-x.json").read_text())["rows"]
        found.append([(r["method"], [split[:2] for split in r["splits"]]) for r in rows])
    assert found[0] == found[1]
    assert [len(splits) for _, splits in found[0]] == [3, 3]


def test_nothing_begins_after_the_last_second(tmp_path):
    places = ["--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    assert lmnn_table1.main([*places, "--data", "iris", "--max-seconds", "-1"]) == 0
    assert list(tmp_path.glob("*.json")) == []


def test_a_failure_is_told_and_not_saved(tmp_path, monkeypatch, capsys):
    def fail(_):
        raise ValueError("no such luck")

    monkeypatch.setitem(table1_methods.METHODS, "pca", fail)
    places = ["--results", str(tmp_path), "--page", str(tmp_path / "page.md"), "--machine", "x"]
    some = ["--data", "iris", "--methods", "euclidean,pca", "--splits", "1"]
    assert lmnn_table1.main([*places, *some]) == 1
    assert "failed: ValueError: no such luck" in capsys.readouterr().err
    rows = json.loads((tmp_path / "lmnn_table1-x.json").read_text())["rows"]
    assert [r["method"] for r in rows] == ["euclidean"]


def test_data_without_its_file_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    places = ["--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    assert lmnn_table1.main([*places, "--data", "letters"]) == 0
    assert "letters: left out: letter needs its data file" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--data", "--methods"])
def test_an_unknown_name_is_told(option, capsys):
    with pytest.raises(SystemExit, match="2"):
        lmnn_table1.parse([option, "mnsit"])
    assert "no 'mnsit'; expected some of" in capsys.readouterr().err


def test_groups_stand_for_their_methods():
    chosen = lmnn_table1.parse(["--methods", "baselines"]).methods
    rest = lmnn_table1.parse(["--methods", "nearfar"]).methods
    assert sorted([*chosen, *rest]) == sorted(table1_methods.METHODS)
    assert "lmnn" in rest


# -- the data ---


def test_splits_have_the_sizes_of_the_table():
    for data in ("iris", "wine"):
        task = table1_data.load(data, 3)
        protocol = table1_paper.PROTOCOLS[data]
        assert [len(part) for part in task.raw] == [protocol.train, protocol.test]
        assert len(np.unique(np.vstack(task.raw), axis=0)) > 0.9 * (protocol.train + protocol.test)
        other = table1_data.load(data, 4)
        assert not np.array_equal(task.raw[0], other.raw[0])


def test_every_class_gives_its_share_where_classes_are_many():
    y = np.repeat(np.arange(40), 10)
    train, test = table1_data._drawn("olivetti", y, 0)
    np.testing.assert_array_equal(np.bincount(y[train]), 7)
    np.testing.assert_array_equal(np.bincount(y[test]), 3)


def test_a_slanted_stroke_becomes_upright():
    """Ink at (r, c) = (4 + t, 4 - t): the slope is -1, so each row comes back to column 4."""
    image = np.zeros((1, 9, 9))
    for t in range(-3, 4):
        image[0, 4 + t, 4 - t] = 1
    upright = np.zeros((1, 9, 9))
    upright[0, 1:8, 4] = 1
    for deskewed in (table1_data.deskewed, table1_data.deskewed_smoothly):
        np.testing.assert_allclose(deskewed(image), upright, atol=1e-12)
        np.testing.assert_allclose(deskewed(upright), upright, atol=1e-12)


@pytest.mark.parametrize(
    ("deskewed", "tolerance"),
    [(table1_data.deskewed, 0.2), (table1_data.deskewed_smoothly, 1e-3)],
)
def test_second_moments_are_uncorrelated_after_deskewing(deskewed, tolerance, rng):
    """Shifts by whole pixels leave what their rounding leaves."""
    rows, columns = np.mgrid[:28, :28]

    def correlation(image):
        r = rows - (rows * image).sum() / image.sum()
        c = columns - (columns * image).sum() / image.sum()
        return (r * c * image).sum() / np.sqrt((r**2 * image).sum() * (c**2 * image).sum())

    for slope in rng.choice([-1, 1], size=5) * rng.uniform(0.3, 0.6, size=5):
        ink = np.exp(-(((columns - 13 - slope * (rows - 14)) / 2) ** 2) - ((rows - 14) / 5) ** 2)
        assert abs(correlation(ink)) > 0.5
        assert abs(correlation(deskewed(ink[None])[0])) < tolerance


def test_thirds_are_means_of_blocks():
    images = np.arange(2 * 5 * 6, dtype=float).reshape(2, 5, 6)
    smaller = table1_data.thirds(images)
    assert smaller.shape == (2, 2, 2)
    assert smaller[0, 0, 0] == images[0, :3, :3].mean()
    last = np.vstack([images[1, 3:], images[1, 4:]])[:, 3:]  # the last row is repeated
    assert smaller[1, 1, 1] == last.mean()


def test_components_of_sparse_rows_are_those_of_dense_ones(rng):
    """Distances between projections agree with the singular value decomposition."""
    dense = rng.poisson(0.3, size=(60, 40)) * rng.uniform(0.1, 3, size=40) ** 2
    train, test = dense[:45], dense[45:]
    found = table1_data._sparse_components(*map(sparse.csr_matrix, (train, test)), 5)
    mean = train.mean(axis=0)
    *_, axes = np.linalg.svd(train - mean, full_matrices=False)
    for part, projected in zip((train, test), found, strict=True):
        expected = (part - mean) @ axes[:5].T
        np.testing.assert_allclose(projected @ projected.T, expected @ expected.T, atol=1e-3)


# -- the page ---


def test_errors_are_those_of_the_paper():
    """Some entries of the printed table."""
    assert table1_paper.error("lmnn", "mnist") == 1.72
    assert table1_paper.error("multi_pass", "yale") == 5.52
    assert table1_paper.error("svm", "iris") == 3.45
    assert table1_paper.error("nca", "mnist") is None
    assert table1_paper.error("multi_metric_energy", "mnist") is None
    assert table1_paper.seconds("multi_metric", "iris") == 5
    counts = {len(errors) for errors in table1_paper.ERRORS.values()}
    assert counts == {len(table1_paper.PROTOCOLS) - len(table1_paper.SAME)}
    assert table1_paper.error("lmnn", "mnist_smooth") == table1_paper.error("lmnn", "mnist")
    assert table1_paper.error("multi_metric", "yale_200") == 4.05


def test_mean_and_standard_error():
    """Errors 0.02, 0.04, 0.06: mean 4 %, deviation 2 %, over the root of 3. One split: binomial."""
    assert table1_page.error_of(row("lmnn", [0.02, 0.04, 0.06])) == pytest.approx(
        (4, 2 / math.sqrt(3))
    )
    assert table1_page.error_of(row("lmnn", [0.02], "mnist")) == pytest.approx(
        (2, 100 * math.sqrt(0.02 * 0.98 / 10000))
    )


def test_page_says_where_we_are_better_and_where_worse():
    """iris: LMNN 4.37 and SVM 3.45 in the paper. Ours 4 ± 1.15, and 6 ± 1 is 2.5 errors worse."""
    ours = row("lmnn", [0.02, 0.04, 0.06], remark="8 passes")
    worse = row("svm", [0.05, 0.07], remark="rbf C=1")
    page = table1_page.page([record(ours, worse), record(row("lmnn", [0.5]))])
    assert "| LMNN | **4.00** (4.37) |" in page
    assert "| multiclass SVM | 6.00 (3.45)! |" in page
    assert "| LMNN | 4.37 | 4.00 ± 1.15 | -0.3 | 3 | 0.5 (paper: 2) | 0.25 | 8 passes |" in page
    assert "| multiclass SVM | 3.45 | 6.00 ± 1.00 | +2.5 | 2 | 0.5 | 0.25 | rbf C=1 |" in page


def test_page_without_records_is_the_introduction():
    assert table1_page.page([]) == table1_page.INTRODUCTION + "\n" + table1_page.ROWS


def test_every_method_has_a_title_and_every_data_set_a_note():
    assert set(table1_methods.METHODS) == set(table1_page.TITLES)
    assert set(table1_data.NOTES) == set(table1_paper.PROTOCOLS)


# -- the methods ---


def test_rca_whitens_within_classes():
    """The points that reach the neighbours have the identity as their covariance within classes."""
    learners = table1_methods.Learners(table1_data.load("wine", 0), "cpu")
    seen = []
    learners.vote = lambda metric: seen.append(metric) or NearestNeighborClassifier(metric)
    table1_methods.rca(learners)
    train, y = seen[0].transform(learners.train), learners.y_train
    centred = np.vstack([train[y == c] - train[y == c].mean(0) for c in range(3)])
    np.testing.assert_allclose(centred.T @ centred / len(train), np.eye(13), atol=1e-8)


def test_some_rows_are_only_where_the_paper_has_them():
    for method in ("mmc", "nca"):
        assert table1_methods.applies(method, "olivetti")
        assert not table1_methods.applies(method, "isolet")


def test_a_missing_folder_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    with pytest.raises(
        common.UnavailableError, match=r"needs mnist.npz, and NEARFAR_DATA has none"
    ):
        common.data_file("mnist")
