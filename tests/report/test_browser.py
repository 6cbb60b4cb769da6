"""The page in a real browser: it opens without errors or requests, and can be used.

The fixture `opened` fails a test at its end if the console said anything or something was fetched.
"""

import csv
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

import nearfar
from nearfar.evaluation import knn_predict
from nearfar.report import explore, material

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PICTURES = Path(__file__).parents[2] / "docs" / "images"

# Where rows are drawn: places and scale are inside the program, so that tests read what it shows.
EVIL = ['</script><script>alert("x")</script>', "<img src=x onerror=alert(1)>", '🦊 "it\'s" & <b>']


def plain(text):
    """Text without the marks around labels, within which the direction of writing may turn."""
    return text.replace("\u2068", "").replace("\u2069", "")


def hover_any(page):
    """Move the mouse along lines until the page tells of a row; returns its words."""
    page.locator("#plot").scroll_into_view_if_needed()
    box = page.locator("#plot").bounding_box()
    tip = page.locator("#tip")
    for share in (0.5, 0.4, 0.6, 0.3, 0.7):
        for x in np.arange(10, box["width"] - 10, 6):
            page.mouse.move(box["x"] + float(x), box["y"] + share * box["height"])
            if tip.is_visible():
                return plain(tip.inner_text())
    return None


def pixels(page):
    """How many pixels of the map are painted, and a digest of them."""
    return page.evaluate(
        """() => {
            const plot = document.getElementById("plot");
            const copy = document.createElement("canvas");
            [copy.width, copy.height] = [plot.width, plot.height];
            const target = copy.getContext("2d", { willReadFrequently: true });
            target.drawImage(plot, 0, 0);
            const data = target.getImageData(0, 0, plot.width, plot.height).data;
            let painted = 0, digest = 0;
            for (let i = 0; i < data.length; i += 4) {
                if (data[i + 3] > 0) painted++;
                digest = (digest * 31 + data[i] + 3 * data[i + 1] + 7 * data[i + 2]) % 1000003;
            }
            return [painted, digest];
        }"""
    )


def settled(page):
    """After the next two frames, in which the map was drawn."""
    page.evaluate(
        "() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
    )
    return pixels(page)


@pytest.fixture
def wine(opened, wine_report_example):
    given = wine_report_example

    def wine(**options):
        options = {"test": given.test, "feature_names": given.names, **options}
        return opened(given.model, given.X, given.y, target_name="cultivar", **options)

    return wine


def selected(page):
    return plain(page.locator("#detail h3").inner_text())


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_it_opens_and_fits_the_screen(wine, color_scheme, width):
    page = wine(color_scheme=color_scheme, width=width)
    assert page.title() == "LMNN · nearfar report"
    assert settled(page)[0] > 500
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 200) == (color_scheme == "dark")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != paper


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_words_can_be_read_on_their_background(wine, color_scheme):
    """Contrast of at least 4.5 to 1 for the words of both themes, as WCAG 2 asks."""
    page = wine(color_scheme=color_scheme)
    colours = page.evaluate(
        """() => {
            const style = getComputedStyle(document.documentElement);
            const names = ["paper", "raised", "ink", "soft", "accent", "caution", "caution-ink"];
            return Object.fromEntries(
                names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
        }"""
    )

    def luminance(name):
        parts = np.array([int(colours[name][i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    for words, ground in [
        ("ink", "paper"),
        ("ink", "raised"),
        ("soft", "paper"),
        ("soft", "raised"),
        ("accent", "paper"),
        ("caution-ink", "caution"),
    ]:
        light, dark = sorted([luminance(words), luminance(ground)], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (words, ground)


def test_hover_tells_of_a_row(wine, wine_report_example):
    page = wine()
    words = hover_any(page)
    row, label = re.match(r"row (\d+) · (\d)", words).groups()
    assert wine_report_example.y[int(row)] == int(label)
    value = wine_report_example.X[int(row), wine_report_example.names.index("proline")]
    assert f"proline\n{value:g}" in words
    page.mouse.move(0, 0)
    assert not page.locator("#tip").is_visible()


def test_search_finds_a_row_a_label_and_a_text(wine, wine_report_example):
    cellar = np.array([f"cellar {i // 10}" for i in range(178)])
    page = wine(columns={"cellar": cellar})
    page.fill("#search", "42")
    page.press("#search", "Enter")
    assert selected(page) == f"row 42 · {wine_report_example.y[42]}"
    page.fill("#search", "cellar 17")
    assert page.locator("#found p").inner_text() == "8 rows found"
    page.press("#search", "Enter")
    assert selected(page).startswith("row 170 ·")
    page.press("#search", "Enter")
    assert selected(page).startswith("row 171 ·")
    page.fill("#search", "no such row")
    assert page.locator("#found p").inner_text() == "No row among those drawn."
    page.press("#search", "Escape")
    assert page.locator("#search").input_value() == ""
    assert page.evaluate("document.activeElement.id") == "plot"
    page.fill("#search", "2")  # the row of that number first, then the rows of that class
    found = list(map(plain, page.locator("#found button").all_inner_texts()))
    assert found[0].startswith("row 2 · 0")
    assert found[1].startswith("row 130 · 2")
    expected = sum(
        i == 2 or label == 2 or "2" in text
        for i, (label, text) in enumerate(zip(wine_report_example.y, cellar, strict=True))
    )
    assert page.locator("#found p").inner_text() == f"{expected} rows found"


def test_the_keyboard_alone_is_enough(wine):
    page = wine()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.locator("#plot").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    assert selected(page).startswith("row 0 ·")
    page.keyboard.press("n")
    page.keyboard.press("n")
    assert selected(page).startswith("row 2 ·")
    page.keyboard.press("p")
    assert selected(page).startswith("row 1 ·")
    assert plain(page.locator("#said").inner_text()).startswith("row 1 ·")
    start = selected(page)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert selected(page) != start
    before = settled(page)
    page.keyboard.press("+")
    zoomed = settled(page)
    assert zoomed != before
    page.keyboard.press("Shift+ArrowLeft")
    assert settled(page) != zoomed
    page.keyboard.press("0")
    assert settled(page) == before
    page.keyboard.press("Escape")
    assert page.locator("#detail h3").count() == 0


def test_arrows_reach_every_direction(opened):
    """Four points around one: each arrow goes to the point that lies there."""
    X = np.array([[0.0, 0], [-3, 0], [3, 0], [0, 2], [0, -2]])
    pca = PCA(2).fit(X)
    page = opened(nearfar.as_metric(pca), X, columns={"place": list("OWENS")})
    page.locator("#plot").focus()
    reached = {}
    for key in ("Right", "Left", "Up", "Down"):
        page.keyboard.press("Escape")
        page.keyboard.press("n")
        assert selected(page) == "row 0"
        page.keyboard.press(f"Arrow{key}")
        reached[key] = page.locator("#detail .values dd").first.inner_text()
    # A principal axis may be mirrored.
    assert {reached["Right"], reached["Left"]} == {"E", "W"}
    assert {reached["Up"], reached["Down"]} == {"N", "S"}


def test_zoom_by_wheel_and_buttons_and_pan_by_drag(wine):
    page = wine()
    page.locator("#plot").focus()
    page.keyboard.press("Escape")
    start = settled(page)
    page.click("#zoom-in")
    assert settled(page) != start
    page.click("#reset")
    assert settled(page) == start
    box = page.locator("#plot").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    page.mouse.wheel(0, -400)
    assert settled(page) != start
    page.click("#reset")
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 60, middle[1] + 30)
    page.mouse.up()
    assert settled(page) != start
    assert page.locator("#detail h3").count() == 0  # a drag selects nothing


def test_colours_views_and_the_legend_change_the_map(wine):
    page = wine()
    seen = {tuple(settled(page))}
    names = page.locator("#colour option").all_inner_texts()
    assert names[:4] == ["cultivar", "right or wrong, by the slider", "held out", "flavanoids"]
    for name in names[1:4]:
        page.select_option("#colour", label=name)
        seen.add(tuple(settled(page)))
    assert len(seen) == 4
    ends = page.locator("#legend .ends span").all_inner_texts()
    assert ends == ["0.34", "5.08"]  # of flavanoids
    page.select_option("#colour", label="cultivar")
    whole = settled(page)
    assert tuple(whole) in seen
    page.click("#legend button >> nth=1")
    assert page.locator("#legend button >> nth=1").get_attribute("aria-pressed") == "true"
    assert settled(page) != whole
    page.click("#legend button >> nth=1")
    assert settled(page) == whole


def slide(page, step):
    page.locator("#t").evaluate(
        "(t, step) => { t.value = step; t.dispatchEvent(new Event('input')); }", step
    )
    return settled(page)


def test_the_slider_goes_from_the_old_distance_to_the_learned_one(wine, wine_report_example):
    """The error at each step, the neighbours and the outcomes are those of M_t."""
    given = wine_report_example
    page = wine(rows=[60])
    pictures = {tuple(settled(page))}
    votes = np.flatnonzero(~given.test)
    images = given.model.transform(given.X)
    c = given.X[votes].var(axis=0).sum() / images[votes].var(axis=0).sum()
    for step in (0, 4, 10):
        t = step / 10
        E = np.hstack([np.sqrt(1 - t) * given.X, np.sqrt(t * c) * images])
        predicted = knn_predict(E[votes], given.y[votes], E[given.test], 3)
        error = 100 * np.mean(predicted != given.y[given.test])
        pictures.add(tuple(slide(page, step)))
        name = {0: "old distance", 10: "learned distance"}.get(step, f"t = {t:g}")
        assert page.locator("#at").inner_text() == f"{name}: {error:.2f} % of 60 rows wrong"
        assert "% of the variance" in page.locator("#note").inner_text()
        apart = np.linalg.norm(E[votes] - E[60], axis=1)
        title = {0: "before learning", 10: "after learning"}.get(step, f"at t = {t:g}")
        cells = page.locator("#detail .near", has_text=title).locator(".pick")
        expected = [f"row {row}" for row in votes[np.argsort(apart)[:5]]]
        assert [words.split("\n")[1] for words in cells.all_inner_texts()] == expected
    assert len(pictures) == 3
    page.select_option("#colour", label="right or wrong, by the slider")
    assert slide(page, 0) != slide(page, 10)
    page.locator("#t").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#at").inner_text().startswith("t = 0.9:")


def test_shares_of_features_in_a_distance(wine, wine_report_example):
    """δ_i (M δ)_i / δᵀMδ before, with M = I, and after; they add up to 100 %."""
    given = wine_report_example
    page = wine(rows=[60])
    page.locator("#detail .compare").last.click()
    title = page.locator("#pair h4").inner_text()
    first, second = map(int, re.findall(r"row (\d+)", title))
    assert first == 60
    delta = given.X[first] - given.X[second]
    shares = [delta * (M @ delta) for M in (np.eye(13), given.model.get_mahalanobis_matrix())]
    before, after = (part / part.sum() for part in shares)
    found = {}
    for line in page.locator("#pair tbody tr").all():
        name, difference, _, figures = (cell.inner_text() for cell in line.locator("th, td").all())
        found[name] = difference, [float(word) for word in re.findall(r"[-\d.]+(?= %)", figures)]
    top = np.argsort(-(abs(before) + abs(after)))[:10]
    assert len(found) == 11
    for i in top:
        difference, figures = found[given.names[i]]
        deviation = given.X[~given.test, i].std()
        assert float(difference) == pytest.approx(delta[i] / deviation, abs=0.006)
        assert figures == pytest.approx([100 * before[i], 100 * after[i]], abs=0.51)
    rest = np.setdiff1d(np.arange(13), top)
    expected = [100 * before[rest].sum(), 100 * after[rest].sum()]
    assert found["3 others"][1] == pytest.approx(expected, abs=0.51)
    page.locator("#plot").focus()
    page.keyboard.press("c")
    assert page.locator("#pair h4").inner_text() != title


def test_lists_are_clicked_through(wine, wine_report_example):
    given = wine_report_example
    page = wine()
    votes = ~given.test
    images = given.model.transform(given.X)
    was, is_wrong = (
        knn_predict(P[votes], given.y[votes], P[given.test], 3) != given.y[given.test]
        for P in (given.X, images)
    )
    counts = {
        "fixed": (was & ~is_wrong).sum(),
        "newly wrong": (~was & is_wrong).sum(),
        "errors": is_wrong.sum(),
    }
    buttons = page.locator("#lists button").all_inner_texts()
    assert buttons[:2] == ["all rows", "examples 6"]
    assert buttons[2:5] == [f"{name} {count}" for name, count in counts.items()]
    whole = settled(page)
    page.click("#lists button >> text=fixed")
    assert page.locator("#lists button >> text=fixed").get_attribute("aria-pressed") == "true"
    assert settled(page) != whole
    assert page.locator("#found button").count() == counts["fixed"]
    assert page.locator("#rows tbody tr").count() == counts["fixed"]
    rows = np.flatnonzero(given.test)[was & ~is_wrong]
    page.click("#found button >> nth=1")
    assert selected(page).startswith(f"row {rows[1]} ·")
    page.locator("#plot").focus()
    page.keyboard.press("n")
    assert selected(page).startswith(f"row {rows[2]} ·")
    page.click("#lists button >> text=all rows")
    assert page.locator("#table-name").inner_text() == "all rows: 178"


def test_a_wrong_label_is_suspicious(opened):
    rng = np.random.default_rng(0)
    truth = np.arange(90) % 3
    X = rng.normal(size=(90, 2)) + 12 * np.eye(3, 2)[truth]
    y = np.where(np.arange(90) == 5, 0, truth)
    page = opened(nearfar.LMNN().fit(X, y), X, y)
    page.click("#lists button >> text=suspicious labels 1")
    assert page.locator("#found button").all_inner_texts() == ["row 5 · \u20680\u2069 · 100%"]
    words = page.locator("#found p").inner_text()
    assert "of whose 10 nearest rows at least half have other labels" in words
    assert "dual weights" in words


def test_an_area_is_a_table_and_a_file(wine, wine_report_example, tmp_path):
    given = wine_report_example
    page = wine(columns={"word": np.array([f'say "{i}", please' for i in range(178)])})
    page.locator("#plot").scroll_into_view_if_needed()
    box = page.locator("#plot").bounding_box()
    corners = [(0.3, 0.05), (0.97, 0.05), (0.97, 0.95), (0.3, 0.95), (0.3, 0.05)]
    page.click("#area")
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.05 * box["height"])
    page.mouse.down()
    for x, y in corners[1:]:
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=4)
    page.mouse.up()
    count = int(page.locator("#found p").inner_text().split()[0])
    assert 10 < count < 178
    assert page.locator("#table-name").inner_text() == f"area: {count}"
    assert page.locator("#area").get_attribute("aria-pressed") == "false"
    page.click("#rows thead button >> text=proline")
    page.click("#rows thead button >> text=proline")
    assert page.locator("#rows th[aria-sort=descending]").inner_text().startswith("proline")
    with page.expect_download() as waiting:
        page.click("#csv")
    waiting.value.save_as(tmp_path / "area.csv")
    with open(tmp_path / "area.csv", newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == count
    proline = [float(line["proline"]) for line in lines]
    assert proline == sorted(proline, reverse=True)
    for line in lines:
        row = int(line["row"])
        assert line["cultivar"] == str(given.y[row])
        assert line["word"] == f'say "{row}", please'
        assert line["held out"] == ("held out" if given.test[row] else "")
        assert float(line["alcohol"]) == pytest.approx(given.X[row, 0], rel=1e-6)
    page.click("#rows tbody button >> nth=0")
    assert selected(page).startswith(f"row {lines[0]['row']} ·")


def test_all_rows_in_view_are_selected_by_a_key(wine):
    page = wine()
    page.locator("#plot").focus()
    page.keyboard.press("a")
    assert page.locator("#table-name").inner_text() == "area: 178"
    assert page.locator("#rows tbody tr").count() == 50
    page.click("#more")
    assert page.locator("#rows tbody tr").count() == 100


def test_many_rows_are_drawn_as_pixels(opened):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 3))
    page = opened(nearfar.as_metric(PCA(2).fit(X)), X, X[:, 0] > 0, test=np.arange(300))
    whole = settled(page)
    assert whole[0] > 5000
    assert (
        "All 9,000 rows are drawn. The neighbours of 3,"
        in page.locator("#map p").first.inner_text()
    )
    page.click("#legend button >> nth=1")
    assert settled(page) != whole
    page.fill("#search", "8999")
    page.press("#search", "Enter")
    assert selected(page) == "row 8999 · True"


def test_held_out_rows_have_a_ring(opened):
    """The same rows once held out and once not: rings are the only difference of the maps."""
    X = np.array([[0.0, 0], [-3, 0], [3, 0], [0, 2], [0, -2], [3, 1]])
    y = np.arange(6) % 2
    model = nearfar.as_metric(PCA(2).fit(X))
    page = opened(model, X, y, test=[0], rows=[3])
    assert page.locator("#rings").is_visible()
    painted = []
    for rows in ([0], [0, 5]):
        page = opened(model, X, y, test=rows, rows=[3])
        page.locator("#plot").focus()
        page.keyboard.press("Escape")
        painted.append(settled(page)[0])
    assert painted[0] < painted[1]


def test_a_class_is_not_broken_in_two_and_no_column_is_cut_off(opened):
    """On a phone: 'malignant' stays in one line, and the table of errors needs no scrolling."""
    rng = np.random.default_rng(0)
    y = np.array(["malignant", "benign"])[np.arange(80) % 2]
    X = rng.normal(size=(80, 4)) + 2 * (np.arange(80) % 2)[:, None]
    page = opened(nearfar.RCA().fit(X, y), X, y, test=np.arange(80) % 4 == 0, width=390)
    for cell in page.locator("#detail .pick strong").all():
        assert cell.evaluate("(c) => c.getClientRects().length") == 1
        assert cell.bounding_box()["height"] < 22
        assert cell.evaluate("(c) => c.scrollWidth <= c.clientWidth")
    for table in page.locator("table.stack").all():
        assert table.evaluate("(t) => t.scrollWidth <= t.parentElement.clientWidth")
        edges = table.locator("td").evaluate_all(
            "(all) => all.map((cell) => cell.getBoundingClientRect().right)"
        )
        assert max(edges) <= 390
    assert "image" not in page.locator("body").inner_text()


def test_the_height_of_the_map_is_that_of_the_rows(opened):
    """Rows in a flat strip, nine times as wide as high: at most half of the height is empty."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2)) * [9, 3]
    page = opened(nearfar.as_metric(PCA(2).fit(X)), X)
    settled(page)
    used = page.evaluate(
        """() => {
            const plot = document.getElementById("plot");
            const data = plot.getContext("2d").getImageData(0, 0, plot.width, plot.height).data;
            let [low, high] = [plot.height, 0];
            for (let i = 3; i < data.length; i += 4) if (data[i]) {
                const y = Math.floor(i / 4 / plot.width);
                [low, high] = [Math.min(low, y), Math.max(high, y)];
            }
            return (high - low) / plot.height;
        }"""
    )
    assert used > 0.7


def test_a_notebook_shows_the_page_in_a_frame(browser, wine_report_example):
    given = wine_report_example
    report = explore(given.model, given.X, given.y, test=given.test)
    page, said = browser.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.set_content(f"<p>a cell</p>{report._repr_html_()}")
    frame = page.frame_locator("iframe")
    assert frame.locator("h2 >> text=Explore the rows").is_visible()
    frame.locator("#plot").focus()
    page.keyboard.press("n")
    assert frame.locator("#detail h3").inner_text().startswith("row ")
    page.close()
    assert said == []


def test_a_click_selects_and_shows_neighbors(wine, wine_report_example):
    given = wine_report_example
    page = wine(rows=[11])
    page.fill("#search", "60")
    page.press("#search", "Enter")
    images = given.model.transform(given.X)
    votes = np.flatnonzero(~given.test)
    for name, points in (("before", given.X), ("after", images)):
        apart = np.linalg.norm(points[votes] - points[60], axis=1)
        apart[votes == 60] = np.inf
        expected = [f"row {row}" for row in votes[np.argsort(apart)[:5]]]
        cells = page.locator("#detail .near", has_text=f"{name} learning").locator(".pick")
        assert [cell.split("\n")[1] for cell in cells.all_inner_texts()] == expected
    first = page.locator("#detail .pick").first
    row = first.inner_text().split("\n")[1]
    first.click()
    assert selected(page).startswith(f"{row} ·")
    page.click("#lists button >> text=chosen 1")
    assert page.locator("#found button").all_inner_texts()[0].startswith("row 11 ·")
    predicted = knn_predict(images[votes], given.y[votes], images[[60]], 3)
    assert given.test[60]
    page.fill("#search", "60")
    page.press("#search", "Enter")
    assert f"after: {predicted[0]} (" in plain(page.locator("#detail p").first.inner_text())


def test_a_click_on_the_map_selects_the_row_under_it(wine):
    page = wine()
    told = hover_any(page).split("\n")[0]
    page.mouse.down()
    page.mouse.up()
    assert selected(page) == told


def test_labels_are_text_and_nothing_else(opened):
    """The page's policy would stop a program; nothing may even try, or the console would tell."""
    rng = np.random.default_rng(0)
    y = np.array(EVIL)[np.arange(60) % 3]
    X = rng.normal(size=(60, 3)) + np.eye(3)[np.arange(60) % 3]
    page = opened(
        nearfar.RCA().fit(X, np.arange(60) % 3),
        X,
        y,
        feature_names=EVIL,
        target_name=EVIL[1],
        title=EVIL[0],
        columns={EVIL[2]: y},
    )
    assert page.locator("h1").inner_text() == EVIL[0]
    assert set(page.locator("#legend button").all_inner_texts()) == set(EVIL)
    page.fill("#search", "🦊")
    assert page.locator("#found p").inner_text() == "20 rows found"
    page.press("#search", "Enter")
    assert selected(page) == f"row 2 · {EVIL[2]}"
    assert hover_any(page) is not None
    assert page.locator("img, b").count() == 0
    assert page.evaluate("document.scripts.length") == 2


def test_a_label_does_not_turn_the_words_around_it(opened):
    rng = np.random.default_rng(0)
    y = np.array(["\u202eright to left", "שלום"])[np.arange(60) % 2]
    X = rng.normal(size=(60, 3)) + np.eye(3)[np.arange(60) % 2]
    page = opened(nearfar.RCA().fit(X, np.arange(60) % 2), X, y)
    page.fill("#search", "row 1")
    page.press("#search", "Enter")
    assert page.locator("#detail h3").inner_text() == "row 1 · \u2068שלום\u2069"
    words = page.locator("#detail > p").first.inner_text()
    assert re.fullmatch(
        r"predicted before: \u2068.*\u2069 \(.*; after: \u2068.*\u2069 \(.*\)", words
    )


def test_search_brings_the_map_into_sight(wine):
    page = wine()

    def top():
        return page.evaluate("document.getElementById('map').getBoundingClientRect().top")

    def leave():
        page.evaluate("window.scrollTo({ top: 1e6, behavior: 'instant' })")
        assert top() < -500

    leave()
    page.keyboard.press("/")
    assert abs(top()) < 100
    page.keyboard.type("42")
    leave()
    page.keyboard.press("Enter")
    assert abs(top()) < 100
    leave()
    page.evaluate("document.querySelector('#found button').click()")
    assert abs(top()) < 100


def test_the_policy_stops_a_foreign_program(browser, tmp_path):
    """What the test above relies on: a script that is slipped into the page does not run."""
    from nearfar.report import write_report

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    path = tmp_path / "report.html"
    write_report(nearfar.RCA().fit(X, y), path, X, y)
    evil = "<script>window.ran = true</script></body>"
    path.write_text(path.read_text(encoding="utf-8").replace("</body>", evil), encoding="utf-8")
    page = browser.new_page()
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(path.as_uri())
    assert page.evaluate("window.ran") is None
    assert "Content Security Policy" in said[0]
    page.close()


def test_pictures_are_shown(opened, digits_report_example):
    given = digits_report_example
    page = opened(given.model, given.X, given.y, test=given.test, feature_names=given.names)
    assert page.locator("#detail canvas").count() == 11  # a row and its ten neighbours
    row = int(re.search(r"\d+", selected(page))[0])
    shown = page.locator("#detail canvas").first.evaluate(
        "(c) => [...c.getContext('2d').getImageData(0, 0, 8, 8).data].filter((_, i) => i % 4 === 0)"
    )
    np.testing.assert_array_equal(shown, np.round(255 * given.X[row] / 16))
    loaded = page.locator("#features img").evaluate_all("(all) => all.map((i) => i.naturalWidth)")
    assert loaded == [8] * len(loaded)
    assert len(loaded) == 8


def test_many_classes_share_the_palette_by_shapes(opened):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), np.arange(200) % 50
    page = opened(nearfar.as_metric(PCA(2).fit(X)), X, y)
    assert page.locator("#legend button").count() == 41
    assert page.locator("#legend button").last.inner_text() == "10 more"
    marks = page.locator("#legend canvas").evaluate_all("(all) => all.map((c) => c.toDataURL())")
    assert len(set(marks[:40])) == 40
    page.click("#legend button >> nth=40")
    page.locator("#plot").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    assert selected(page) == "row 40 · 40"


@pytest.mark.filterwarnings("ignore::nearfar.errors.NearfarWarning")
def test_a_map_without_labels_or_points_opens(opened):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(80, 2))
    graph = nearfar.NeighborhoodGraph.from_points(X, n_neighbors=8, angles=False)
    edges = nearfar.NeighborhoodGraph.from_edges(graph.heads, graph.tails, graph.lengths, 80)
    page = opened(nearfar.SensorLocalization(random_state=0).fit(edges))
    assert settled(page)[0] > 200
    assert hover_any(page).startswith("row ")
    assert not page.locator("#view").is_visible()


def test_neighbors_that_are_not_drawn_are_named(opened, monkeypatch):
    monkeypatch.setattr(material, "SHOWN", 5)
    monkeypatch.setattr(material, "LISTED", 3)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), np.arange(300) % 2
    page = opened(nearfar.as_metric(PCA(2).fit(X)), X, y, rows=[0])
    page.fill("#search", "0")
    assert "rows found" in page.locator("#found p").inner_text()
    named = page.locator("#detail div.pick")
    page.locator("#plot").focus()
    for _ in range(12):
        page.keyboard.press("n")
        if named.count():
            break
    assert "is not among the drawn rows" in named.first.get_attribute("title")


@pytest.mark.usefixtures("browser")
def test_the_pictures_of_the_page_on_reports_can_be_taken(tmp_path):
    """In a program of its own: playwright runs once in a process."""
    done = subprocess.run(
        [sys.executable, PICTURES / "draw_report.py", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    page = (PICTURES.parent / "report.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\(images/(.*?)\)", page))
    assert {path.name for path in tmp_path.iterdir()} == named
    assert all((PICTURES / name).exists() for name in named)
