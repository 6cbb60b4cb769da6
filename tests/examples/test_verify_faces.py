"""Faces: new people are new, rates are counted, learning helps."""

import re

import numpy as np
import pytest

from tests.examples.running import run_example, stand_in_or_data


@pytest.fixture(scope="module", **stand_in_or_data("olivetti_faces.npz"))
def ran(request):
    return run_example("verify_faces", request.param)


def test_new_people_are_not_among_the_known(ran):
    """Ten photographs of each person are in a row, so that the first 70 are those of seven."""
    who = ran["who"]
    np.testing.assert_array_equal(who, np.repeat(np.arange(40), 10))
    pairs, alike, questions, answers = ran["split"](3)
    assert len(pairs.points) == 250
    assert len(questions.points) == 150
    assert (alike == 1).sum() == (alike == -1).sum() == 1000
    assert (answers == 1).sum() == 15 * 45
    same = questions.indices[:, 0] // 10 == questions.indices[:, 1] // 10
    np.testing.assert_array_equal(same, answers == 1)


def test_the_table(ran):
    """At the equal error rate as many right pairs fail as wrong ones pass."""
    line = next(line for line in ran.text.splitlines() if line.startswith("RCA  "))
    error, strict = (float(mean) for mean in re.findall(r"([\d.]+) ±", line))
    errors, passed = [], []
    for seed in range(10):
        pairs, alike, questions, answers = ran["split"](seed)
        distances = ran["RCA"]().fit(pairs, alike).pair_distance(questions)
        near, far = np.sort(distances[answers == 1]), np.sort(distances[answers == -1])
        refused = 1 - np.searchsorted(near, far, "right") / len(near)
        let = np.arange(1, len(far) + 1) / len(far)
        errors.append(np.abs(refused - let).argmin())
        errors[-1] = (refused[errors[-1]] + let[errors[-1]]) / 2
        passed.append(np.mean(near < far[int(0.01 * len(far))]))
    assert error == pytest.approx(100 * np.mean(errors), abs=0.2)
    assert strict == pytest.approx(100 * np.mean(passed), abs=0.2)
    for name in ("RCA", "LMNN"):
        assert f"{name} has a lower equal error rate than the inputs in 10 of 10" in ran.text


def test_lmnn_learns_from_the_known_people(ran):
    """``names`` are those of the last draw, and ``learned`` was fitted to them."""
    lmnn, names = ran["learned"][1], ran["names"]
    assert len(np.unique(names)) == 25
    known = ran["who"][np.isin(ran["who"], names)]
    np.testing.assert_array_equal(known, names)
    assert lmnn.classes_.tolist() == sorted(set(names.tolist()))


def test_the_door_was_set_by_other_people(ran):
    """Who sets the threshold does not ask."""
    questions, setting, asking = (ran[name] for name in ("questions", "setting", "asking"))
    set_by, asked_by = (np.unique(questions.indices[part] // 10) for part in (setting, asking))
    assert (len(set_by), len(asked_by)) == (7, 8)
    assert not np.isin(set_by, asked_by).any()
    door, answers = ran["door"], ran["answers"]
    passed = door.pair_distance(questions[setting])[answers[setting] == 1] <= door.threshold_
    assert 0.9 <= passed.mean() < 0.92
