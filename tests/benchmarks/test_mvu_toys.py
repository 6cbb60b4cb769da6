"""The thesis' small examples: their shapes, their claims, the command."""

import json

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from benchmarks.papers import mvu_toys, toys, toys_data
from benchmarks.papers.toys import TOYS, Claim, Toy


def claims(name):
    return list(TOYS[name][1](Toy(smoke=True, device="cpu")))


# -- the claims, on small examples ---


@pytest.mark.parametrize("name", [name for name in TOYS if name != "comb"])
def test_the_thesis_claim_holds(name):
    found = claims(name)
    assert found
    assert any(claim.holds for claim in found)
    for claim in found:
        assert claim.holds is not False, claim


def test_a_comb_takes_as_many_dimensions_as_it_has_teeth():
    """The spine one, and teeth that point away from each other one less than there are teeth."""
    mvu, isomap = claims("comb")
    assert mvu.holds
    assert mvu.ours.startswith("6: ")
    assert isomap.holds is None
    for teeth in (3, 4):
        model = Toy(True, "cpu").unfolded(toys_data.comb(90, teeth), 3, constraints="exact")
        spectrum = toys.shares(model)
        assert (spectrum > 0.01).sum() == teeth


# -- the shapes ---


def test_distances_along_a_roll_are_arc_lengths():
    """Close points of the same height: the spiral's chord is its arc."""
    X, along = toys_data.swiss_roll(4000, height=0)
    order = np.argsort(along)
    chords = np.linalg.norm(np.diff(X[order], axis=0), axis=1)
    np.testing.assert_allclose(chords, np.diff(along[order]), rtol=1e-3)
    assert len(toys_data.swiss_roll(10)[0]) == 10


def test_noise_is_added_to_the_same_roll():
    quiet, along = toys_data.swiss_roll(2000)
    loud, same = toys_data.swiss_roll(2000, noise=0.5)
    np.testing.assert_array_equal(along, same)
    assert (loud - quiet).std() == pytest.approx(0.5, rel=0.05)


def test_a_comb_goes_in_equal_steps():
    X = toys_data.comb(300)
    assert len(X) == pytest.approx(300, abs=10)
    assert len(np.unique(X[X[:, 1] > 0, 0])) == 6
    step = 23 / 300
    assert pdist(X).min() == pytest.approx(step, rel=0.6)
    assert X[:, 1].max() == pytest.approx(3, abs=step)


def test_a_knot_is_closed_and_goes_in_equal_steps():
    X = toys_data.trefoil(1617).reshape(539, 3, 3)
    middle = X[:, 1]
    steps = np.linalg.norm(np.roll(middle, -1, axis=0) - middle, axis=1)
    np.testing.assert_allclose(steps, steps.mean(), rtol=1e-3)
    across = np.linalg.norm(X[:, 2] - X[:, 0], axis=1)
    np.testing.assert_allclose(across, steps.mean(), rtol=1e-3)
    along = np.roll(middle, -1, axis=0) - np.roll(middle, 1, axis=0)
    cosines = ((X[:, 2] - X[:, 0]) * along).sum(1) / across / np.linalg.norm(along, axis=1)
    assert np.abs(cosines).max() < 1e-2


def test_fives_of_scikit_learn():
    assert toys_data.fives(smoke=True).shape == (182, 64)


def test_slack_has_a_price_of_so_many_times_the_least():
    """The least is 1 over the second smallest eigenvalue, which is 3 for a triangle."""
    triangle = np.array([[0.0, 0], [1, 0], [0, 1]])
    weight = toys.slack_weight(triangle, 2)
    assert weight / (1 - weight) == pytest.approx(toys.SLACK / 3)


# -- the command ---


def test_a_claim_that_does_not_hold_fails_a_smoke_run(monkeypatch, capsys):
    def wrong(_):
        yield Claim("something", "yes", "no", False)
        yield Claim("something else", "yes", "perhaps", None)

    monkeypatch.setitem(TOYS, "comb", ("A comb", wrong))
    assert mvu_toys.main(["--smoke", "--toys", "comb"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "comb, something: no, expected yes\n"
    assert "| something | yes | no | no |" in printed.out
    assert "| something else | yes | perhaps |  |" in printed.out


def test_what_is_saved_is_left_out(tmp_path, monkeypatch, capsys):
    def right(_):
        yield Claim("something", "yes", "yes", True)

    for name in ("comb", "trefoil"):
        monkeypatch.setitem(TOYS, name, (name, right))
    places = ["--results", str(tmp_path), "--machine", "x", "--page", str(tmp_path / "page.md")]
    assert mvu_toys.main([*places, "--toys", "comb"]) == 0
    capsys.readouterr()
    assert mvu_toys.main([*places, "--toys", "comb,trefoil"]) == 0
    assert capsys.readouterr().out.startswith("trefoil ")
    rows = json.loads((tmp_path / "mvu_toys-x.json").read_text())["rows"]
    assert [r["data"] for r in rows] == ["comb", "trefoil"]
    assert "| something | yes | yes | yes |" in (tmp_path / "page.md").read_text()
