from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

import nearfar
from nearfar.errors import InvalidInputError
from nearfar.plots import NeighborsDisplay
from nearfar.plots._canvas import FAR, NEAR


def brute(queries, points, k):
    """Neighbours by all distances, those at distance 0 of the same row left out by the caller."""
    D = np.linalg.norm(queries[:, None] - points[None], axis=2)
    return np.argsort(D, axis=1, kind="stable")[:, :k]


def test_neighbours_are_searched_among_rows_that_are_no_queries(lmnn, digits):
    X, y = digits
    queries, others = np.arange(300, 400), np.arange(300)
    display = NeighborsDisplay.from_estimator(lmnn, X, y, queries=queries, n_neighbors=4)
    Z = X @ lmnn.components_.T
    np.testing.assert_array_equal(display.before, brute(X[queries], X[others], 4))
    np.testing.assert_array_equal(display.after, brute(Z[queries], Z[others], 4))
    before = (y[display.before] == y[queries][:, None]).mean()
    after = (y[display.after] == y[queries][:, None]).mean()
    assert display.agreement() == (pytest.approx(before), pytest.approx(after))


def test_without_queries_every_row_is_one_and_not_its_own_neighbour(lmnn, digits):
    X, y = digits
    X = np.concatenate([X[:50], X[:50]])  # every point has a twin, at distance 0
    display = NeighborsDisplay.from_estimator(lmnn, X, np.tile(y[:50], 2), n_neighbors=1)
    np.testing.assert_array_equal(display.before[:, 0], (np.arange(100) + 50) % 100)
    np.testing.assert_array_equal(display.after[:, 0], (np.arange(100) + 50) % 100)


def test_a_point_of_several_metrics_is_measured_by_its_neighbours_metric(iris):
    X, y = iris
    model = nearfar.MultiMetricLMNN(tol=0.1).fit(X[::2], y[::2])
    queries = np.arange(1, 150, 2)
    display = NeighborsDisplay.from_estimator(model, X, y, queries=queries)
    for row, query in enumerate(queries):
        others = np.arange(0, 150, 2)
        images = np.einsum("nrd,nd->nr", model.components_[y[others]], X[others] - X[query])
        expected = others[np.argsort((images**2).sum(axis=1), kind="stable")[:3]]
        np.testing.assert_array_equal(display.after[row], expected)
    with pytest.raises(InvalidInputError, match=r"by the metric of its label\. Give y"):
        NeighborsDisplay.from_estimator(model, X, queries=queries)


def test_a_baseline_may_come_before(lmnn, digits):
    X, y = digits
    display = NeighborsDisplay.from_estimator(lmnn, X, y, baseline=lmnn)
    np.testing.assert_array_equal(display.before, display.after)
    with pytest.raises(InvalidInputError, match="no query was helped"):
        display.plot(show="helped")


@pytest.fixture
def given():
    """Four queries: helped by 2, hurt by 1, changed within its class, unchanged."""
    y = np.array([0, 0, 1, 1, 0, 0, 0, 1, 1, 1])
    before = np.array([[7, 8], [4, 7], [7, 8], [7, 8]])
    after = np.array([[4, 5], [7, 8], [9, 7], [7, 8]])
    return NeighborsDisplay(np.arange(4), before, after, y)


@pytest.mark.parametrize(
    ("show", "rows"),
    [
        ("changed", [0, 1, 2, 3]),
        ("helped", [0]),
        ("hurt", [1]),
        ("random", [0, 1, 2, 3]),
        ([3, 1], [3, 1]),
    ],
    ids=str,
)
def test_which_queries_are_drawn(given, show, rows):
    assert given.plot(show=show).rows_.tolist() == rows


def test_frames_tell_neighbours_of_the_same_label(given):
    given.plot(show=[0, 1])
    frames = [patch for patch in given.ax_.patches if isinstance(patch, Rectangle)]
    colours = np.array([to_hex(frame.get_edgecolor()) for frame in frames]).reshape(2, 5)
    same, other = NEAR.lower(), FAR.lower()
    assert colours[0, 1:].tolist() == [other, other, same, same]
    assert colours[1, 1:].tolist() == [same, other, other, other]
    dashed = np.array([frame.get_linestyle() not in ("-", "solid") for frame in frames])
    np.testing.assert_array_equal(dashed.reshape(2, 5)[:, 1:], colours[:, 1:] == other)
    assert len({frame.get_bbox().bounds for frame in frames}) == 10


def test_headings_give_the_agreement_over_all_queries(given):
    heads = [text.get_text() for text in given.plot(show=[0]).ax_.texts[-3:]]
    assert heads[0] == "query"
    assert heads[1] == "before\n62.5% of the same label"  # 5 of 8
    assert heads[2] == "after\n75.0% of the same label"  # 6 of 8


def test_pictures_are_those_of_the_rows(lmnn, digits):
    X, y = digits
    display = NeighborsDisplay.from_estimator(lmnn, X, y, image_shape=(8, 8), n_rows=2)
    images = display.ax_.images
    assert len(images) == 2 * 7
    query = int(display.rows_[0])
    place = display.queries.tolist().index(query)
    expected = [query, *display.before[place], *display.after[place]]
    for image, row in zip(images, expected, strict=False):
        np.testing.assert_array_equal(image.get_array(), X[row].reshape(8, 8))


def test_texts_are_wrapped_and_shortened(given):
    given.texts = ["word " * 40] * 10
    given.plot(show=[0])
    cell = given.ax_.texts[0].get_text().split("\n")
    assert len(cell) == 4
    assert max(map(len, cell)) <= 24
    assert cell[-1].endswith("…")


def test_without_pictures_and_texts_labels_and_rows_are_written(given):
    assert given.plot(show=[0]).ax_.texts[1].get_text() == "1\nrow 7"


def test_many_queries_are_sampled(rng):
    X = rng.normal(size=(2000, 3))
    model = nearfar.LinearMetric().fit(X)
    display = NeighborsDisplay.from_estimator(model, X, show="random", max_queries=100)
    assert display.before.shape == (100, 3)
    assert len(set(display.queries.tolist())) == 100


def test_an_embedding_is_compared_with_the_points_of_fit(mvu, roll):
    display = NeighborsDisplay.from_estimator(mvu, y=np.arange(100) // 25, n_neighbors=2)
    np.testing.assert_array_equal(display.before, brute(roll, roll, 3)[:, 1:])
    Y = mvu.embedding_
    np.testing.assert_array_equal(display.after, brute(Y, Y, 3)[:, 1:])


def test_what_cannot_be_drawn_is_refused(given, lmnn, digits):
    X, y = digits
    given.labels = None
    with pytest.raises(InvalidInputError, match="show='hurt' needs labels"):
        given.plot(show="hurt")
    with pytest.raises(InvalidInputError, match="labels are needed"):
        given.agreement()
    with pytest.raises(InvalidInputError, match="or row numbers; got 'best'"):
        given.plot(show="best")
    with pytest.raises(InvalidInputError, match="show must name queries"):
        NeighborsDisplay(np.array([2, 5]), given.before[:2], given.after[:2]).plot(show=[3])
    with pytest.raises(InvalidInputError, match=r"queries must be distinct .* 0 to 399; got 400"):
        NeighborsDisplay.from_estimator(lmnn, X, y, queries=[0, 400])
    with pytest.raises(InvalidInputError, match="queries must be row numbers"):
        NeighborsDisplay.from_estimator(lmnn, X, y, queries=[0.5])
    with pytest.raises(InvalidInputError, match="queries must name at least one row; got none"):
        NeighborsDisplay.from_estimator(lmnn, X, y, queries=[])
    with pytest.raises(InvalidInputError, match="show must name at least one row; got none"):
        NeighborsDisplay(np.array([2, 5]), given.before[:2], given.after[:2]).plot(show=[])
    with pytest.raises(InvalidInputError, match=r"n_neighbors=5 needs .* there are 4"):
        NeighborsDisplay.from_estimator(lmnn, X[:5], y[:5], n_neighbors=5)
    with pytest.raises(InvalidInputError, match=r"got \(1, 2\) and \(1, 3\) for 1 queries"):
        NeighborsDisplay.from_predictions([0], [[1, 2]], [[1, 2, 3]])
    with pytest.raises(InvalidInputError, match="there are 2, and row 3 is to be shown"):
        NeighborsDisplay.from_predictions([0], [[1]], [[3]], texts=["a", "b"])
