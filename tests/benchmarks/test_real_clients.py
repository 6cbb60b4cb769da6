"""nearfar inside other libraries; a use whose library is not installed is skipped."""

import pytest

from benchmarks import real_clients
from benchmarks.real_clients.__main__ import main
from benchmarks.real_clients.uses import Use, outcome_of

USES = real_clients.collect()


@pytest.mark.parametrize("one", USES, ids=lambda one: one.name)
def test_use(one):
    outcome = outcome_of(one)
    if outcome.verdict == "not installed":
        pytest.skip(f"{outcome.why} is not installed")
    if outcome.verdict == "theirs":
        pytest.skip(f"does not work: {outcome.why}")
    assert outcome.verdict == "works", outcome.why


def test_there_are_many_uses_and_most_light_ones_need_scikit_learn_only():
    assert len(USES) > 80
    assert sum(not one.needs for one in USES) > 30


def broken():
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("one", "verdict", "why"),
    [
        (Use("a", broken, (), None), "broke", "ValueError: no such thing"),
        (Use("a", broken, (), "their fault"), "theirs", "their fault"),
        (
            Use("a", broken, ("nothing_of_that_name",), None),
            "not installed",
            "nothing_of_that_name",
        ),
        (Use("a", lambda: None, (), None), "works", ""),
        (Use("a", lambda: None, (), "their fault"), "mended", "their fault"),
    ],
)
def test_verdicts(one, verdict, why):
    outcome = outcome_of(one)
    assert outcome.verdict == verdict
    assert outcome.why.startswith(why)


def test_the_command_prints_a_line_for_each_use(capsys):
    assert main(["--only", "set_params"]) == 0
    printed = capsys.readouterr().out
    assert "works" in printed
    assert printed.endswith("1 works\n")
    assert main(["--list", "--only", "umap"]) == 0
    assert "umap: get_metric as its metric (umap)" in capsys.readouterr().out
