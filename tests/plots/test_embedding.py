from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn.decomposition import PCA

from nearfar import MVU
from nearfar.errors import InvalidInputError
from nearfar.plots import EmbeddingDisplay
from nearfar.plots._canvas import COLOURS, FAINT


def drawn(display):
    """All points, with their colours."""
    places = np.concatenate([part.get_offsets() for part in display.points_])
    colours = [to_hex(c) for part in display.points_ for c in part.get_facecolors()]
    return np.asarray(places), colours


def test_points_have_the_colour_of_their_class(rng):
    places, y = rng.normal(size=(30, 2)), np.repeat(["b", "a", "c"], 10)
    display = EmbeddingDisplay.from_predictions(places, y)
    found, colours = drawn(display)
    expected = {
        tuple(place): COLOURS["abc".index(label)] for place, label in zip(places, y, strict=True)
    }
    assert {tuple(p): c for p, c in zip(found, colours, strict=True)} == expected
    legend = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert legend == ["a", "b", "c"]
    assert display.ax_.get_aspect() == 1.0


def test_forty_classes_differ_in_colour_or_marker(rng):
    y = np.repeat(np.arange(40), 5)
    display = EmbeddingDisplay.from_predictions(rng.normal(size=(200, 2)), y)
    looks = {
        (to_hex(colour), part.get_paths()[0].vertices.tobytes())
        for part in display.points_
        for colour in part.get_facecolors()
    }
    assert len(looks) == 40
    names = {text.get_text() for text in display.ax_.texts}
    assert names == set(map(str, range(40)))
    assert display.ax_.get_legend() is None


def test_names_on_the_map_do_not_lie_on_each_other():
    places = np.random.default_rng(0).normal(size=(60, 2))
    y = np.arange(60) % 6  # all classes have nearly the same middle
    display = EmbeddingDisplay.from_predictions(places, y, names="map")
    at = np.array([text.get_position() for text in display.ax_.texts])
    gaps = np.linalg.norm(at[:, None] - at[None], axis=2) + 9 * np.eye(6)
    assert gaps.min() > 0.03 * np.ptp(places, axis=0).max()


@pytest.mark.parametrize(
    ("y", "scale"),
    [
        (np.linspace(0, 1, 60), True),
        (np.arange(60), True),
        (np.arange(60) % 50, False),
        (np.arange(60) % 3 * 1.0, False),
        (np.arange(60) % 2 == 0, False),
        (np.array(list("ab") * 30), False),
    ],
    ids=["not whole", "60 kinds", "50 kinds", "whole floats", "bool", "words"],
)
def test_numbers_are_a_scale_where_they_are_many_or_not_whole(y, scale, rng):
    display = EmbeddingDisplay.from_predictions(rng.normal(size=(60, 2)), y)
    assert (display.points_[0].get_array() is not None) == scale
    assert (len(display.figure_.axes) == 2) == scale  # a colour bar


def test_points_without_a_number_are_grey_below_the_others_and_counted(rng, plt):
    places, y = rng.normal(size=(60, 2)), np.linspace(0, 1, 60)
    y[[4, 7, 9]] = np.nan, np.inf, np.nan
    for cmap in ("viridis", plt.get_cmap("magma")):
        display = EmbeddingDisplay.from_predictions(places, y, name="map", cmap=cmap)
        display.figure_.canvas.draw()
        found, colours = drawn(display)
        assert {tuple(place) for place in found} == {tuple(place) for place in places}
        assert {tuple(place) for place in found[:3]} == {tuple(places[row]) for row in (4, 7, 9)}
        assert [number for number, c in enumerate(colours) if c == FAINT] == [0, 1, 2]
        assert display.points_[0].get_clim() == (0, 1)
        assert display.ax_.get_title() == "map, 3 without a number (grey)"
    assert to_hex(plt.get_cmap("magma").get_bad()) != FAINT  # only a copy was changed


def test_labels_that_are_all_unknown_are_drawn(rng):
    display = EmbeddingDisplay.from_predictions(rng.normal(size=(9, 2)), np.full(9, np.nan))
    display.figure_.canvas.draw()
    assert set(drawn(display)[1]) == {FAINT}


def test_whole_floats_are_named_like_integers(rng):
    display = EmbeddingDisplay.from_predictions(rng.normal(size=(4, 2)), [0.0, 1.0, 1.0, 0.0])
    assert [t.get_text() for t in display.ax_.get_legend().get_texts()] == ["0", "1"]


def test_the_label_name_stands_by_the_legend_or_the_scale(rng):
    places = rng.normal(size=(60, 2))
    legend = EmbeddingDisplay.from_predictions(places, [0, 1] * 30, label_name="digit")
    assert legend.ax_.get_legend().get_title().get_text() == "digit"
    scale = EmbeddingDisplay.from_predictions(places, np.linspace(0, 1, 60), label_name="angle")
    assert scale.figure_.axes[1].get_ylabel() == "angle"


def test_more_than_two_columns_are_seen_along_their_principal_axes(rng):
    """Columns of deviations 3, 2 and 1 at different places: the last is left out."""
    places = rng.normal(size=(4000, 3)) * [1, 3, 2]
    display = EmbeddingDisplay.from_predictions(places)
    centred = places - places.mean(axis=0)
    for column, axis in ((0, 1), (1, 2)):
        similar = np.corrcoef(display.embedding[:, column], centred[:, axis])[0, 1]
        assert similar > 0.99
    share = PCA().fit(places).explained_variance_ratio_[0]
    assert display.ax_.get_xlabel() == f"axis 1 ({share:.0%} of variance)"


def test_columns_may_be_chosen(rng):
    places = rng.normal(size=(10, 3))
    display = EmbeddingDisplay.from_predictions(places, components=(2, 0))
    np.testing.assert_array_equal(display.embedding, places[:, [2, 0]])
    assert display.ax_.get_xlabel() == "axis 3"
    for wrong in ((0, 3), (1, 1), (0,), (0.0, 1.0)):
        with pytest.raises(InvalidInputError, match="two different columns"):
            EmbeddingDisplay.from_predictions(places, components=wrong)


def test_one_dimension_lies_along_the_horizontal_axis(rng):
    places = rng.normal(size=(50, 1))
    display = EmbeddingDisplay.from_predictions(places)
    found, _ = drawn(display)
    np.testing.assert_array_equal(np.sort(found[:, 0]), np.sort(places[:, 0]))
    assert len(display.ax_.get_yticks()) == 0


def test_thumbnails_do_not_overlap_and_lie_on_their_points(rng):
    places, images = rng.normal(size=(300, 2)), rng.uniform(size=(300, 6, 4))
    display = EmbeddingDisplay.from_predictions(places, np.arange(300) % 3, images=images)
    boxes = np.array([image.get_extent() for image in display.ax_.images])
    assert len(boxes) == len(display.thumbnails_) > 20
    middles = (boxes[:, [0, 2]] + boxes[:, [1, 3]]) / 2
    np.testing.assert_allclose(middles, places[display.thumbnails_])
    width, height = boxes[0, 1] - boxes[0, 0], boxes[0, 3] - boxes[0, 2]
    assert width / height == pytest.approx(4 / 6)
    gaps = np.abs(middles[:, None] - middles[None]) / [width, height]
    apart = gaps.max(axis=2) + 9 * np.eye(len(boxes))
    assert apart.min() > 1
    for image, row in zip(display.ax_.images, display.thumbnails_, strict=True):
        np.testing.assert_array_equal(image.get_array(), images[row])


def test_all_thumbnails_are_inside_the_axes(rng):
    places, images = rng.normal(size=(100, 2)), rng.uniform(size=(100, 5, 5))
    display = EmbeddingDisplay.from_predictions(places, images=images, thumbnail_size=0.1)
    display.figure_.canvas.draw()
    boxes = np.array([image.get_extent() for image in display.ax_.images])
    (left, right), (low, high) = display.ax_.get_xlim(), display.ax_.get_ylim()
    assert left < boxes[:, 0].min()
    assert boxes[:, 1].max() < right
    assert low < boxes[:, 2].min()
    assert boxes[:, 3].max() < high


def test_rows_of_pixels_and_colours_are_pictures(rng, lmnn, digits):
    X, y = digits
    display = EmbeddingDisplay.from_estimator(lmnn, X, y, image_shape=(8, 8))
    np.testing.assert_array_equal(display.images[3], X[3].reshape(8, 8))
    bright = rng.integers(0, 256, size=(400, 8, 8, 3))
    for colours in (bright.astype(np.uint8), bright.astype(float), bright / 255):
        assert EmbeddingDisplay.from_estimator(lmnn, X, y, images=colours).ax_.images
    with pytest.raises(InvalidInputError, match="needs 63 values a row; there are 64"):
        EmbeddingDisplay.from_estimator(lmnn, X, y, image_shape=(7, 9))
    with pytest.raises(InvalidInputError, match=r"images must have shape \(400, height"):
        EmbeddingDisplay.from_estimator(lmnn, X, y, images=X)


def test_a_hundred_thousand_points_are_pixels_in_a_vector_graphic(rng, tmp_path):
    places = rng.normal(size=(100_000, 2))
    display = EmbeddingDisplay.from_predictions(places, np.arange(100_000) % 10)
    assert display.points_[0].get_rasterized()
    display.figure_.savefig(tmp_path / "many.svg")
    assert (tmp_path / "many.svg").stat().st_size < 2e6


def test_colours_show_how_many_points_overlap(rng):
    """30 000 points in one cell of the map, and single ones far away."""
    places = np.vstack([rng.normal(size=(30_000, 2)), [[1000.0, 0.0], [0.0, 1000.0]]])
    display = EmbeddingDisplay.from_predictions(places)
    counts = np.asarray(display.points_[0].get_array())
    assert sorted(counts)[:2] == [1, 1]
    assert counts.max() > 10_000
    plain = EmbeddingDisplay.from_predictions(places, scatter_kwargs={"color": "red"})
    assert plain.points_[0].get_array() is None


def test_the_title_of_an_unfolding_says_what_is_proved(rng):
    X = np.column_stack([np.arange(30.0), 0.1 * rng.normal(size=30), 0.1 * rng.normal(size=30)])
    model = MVU(n_neighbors=3, constraints="shrink").fit(X)
    display = EmbeddingDisplay.from_estimator(model)
    share = model.eigenvalues_[:2].sum() / model.eigenvalues_.sum()
    assert display.ax_.get_title() == (
        f"MVU\ncertified gap {model.duality_gap_:.1e}; {share:.1%} of the variance in 2 of 30 axes"
    )
    assert EmbeddingDisplay.from_estimator(model, X).ax_.get_title() == "MVU"


def test_of_more_points_a_sample_is_drawn_and_the_title_says_so(rng):
    display = EmbeddingDisplay.from_predictions(rng.normal(size=(500, 2)), max_points=80)
    assert len(drawn(display)[0]) == 80
    assert display.ax_.get_title() == "80 of 500 points"


def test_bad_places_and_labels_are_refused():
    with pytest.raises(InvalidInputError, match=r"shape \(n_samples, n_components\); got \(3,\)"):
        EmbeddingDisplay.from_predictions([1.0, 2.0, 3.0])
    with pytest.raises(InvalidInputError, match="row 1 is not") as caught:
        EmbeddingDisplay.from_predictions([[0.0, 0.0], [np.nan, 1.0]])
    assert caught.value.indices.tolist() == [1]
    with pytest.raises(InvalidInputError, match="a label for each of the 2 rows"):
        EmbeddingDisplay.from_predictions([[0.0, 0.0], [1.0, 1.0]], [1, 2, 3])
    with pytest.raises(InvalidInputError, match="names must be one of 'auto'"):
        EmbeddingDisplay.from_predictions([[0.0, 0.0], [1.0, 1.0]], names="beside")


def test_points_in_one_place_are_drawn():
    display = EmbeddingDisplay.from_predictions(np.zeros((5, 2)), images=np.zeros((5, 2, 2)))
    display.figure_.canvas.draw()
    assert len(display.thumbnails_) == 1


def test_a_model_that_keeps_no_points_asks_for_them(lmnn):
    with pytest.raises(InvalidInputError, match=r"LMNN does not keep the points.*Give them as X"):
        EmbeddingDisplay.from_estimator(lmnn)


def test_labels_of_several_types_are_words(rng):
    y = np.array(["a", None, 3] * 4, dtype=object)
    display = EmbeddingDisplay.from_predictions(rng.normal(size=(12, 2)), y)
    names = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert names == ["3", "None", "a"]


def test_texts_stand_out_from_a_dark_background(rng, plt):
    with plt.style.context("dark_background"):
        display = EmbeddingDisplay.from_predictions(
            rng.normal(size=(12, 2)), [0, 1] * 6, names="map"
        )
    text = display.ax_.texts[0]
    (rim,) = text.get_path_effects()
    assert to_hex(text.get_color()) == "#ffffff"
    assert to_hex(rim._gc["foreground"]) == "#000000"
