"""The comparison of two versions sees what is worse, and nothing else."""

import json

import pytest

from benchmarks import fits

NAME = "mmc wine"
FIT = {"objective": 2.0, "gap": 1e-4, "n_iter": 9, "seconds": 1.0, "tol": 1e-3}
FIT |= {"user_seconds": 1.0, "system_seconds": 0.0}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"objective": 2.003}, []),
        ({"objective": 2.1}, ["mmc wine: the objective differs by 5.0e-02"]),
        ({"gap": 2e-3}, ["mmc wine: gap 2.0e-03, where it was 1.0e-04"]),
        ({"seconds": 3.0}, []),
        ({"error": "MemoryError"}, ["mmc wine fails"]),
    ],
    ids=str,
)
def test_what_is_worse(change, expected, capsys):
    assert fits.compare({NAME: FIT}, {NAME: FIT | change}) == expected
    assert ("slower" in capsys.readouterr().out) == ("seconds" in change)


def test_the_fits_are_of_public_classes():
    from nearfar import __all__

    assert {kind for kind, _, _ in fits.FITS.values()} <= set(__all__)
    assert len(fits.FITS) >= 40
    assert set(fits.SMOKE) <= set(fits.FITS)


@pytest.mark.parametrize("name", fits.PAPERS)
def test_programs_of_versions_with_and_without_shrinkage(name):
    class WithShrinkage:
        def __init__(self, shrinkage="auto"): ...

    class WithoutShrinkage:
        def __init__(self, regularization=0.0): ...

    kinds = WithShrinkage, WithoutShrinkage
    new, old = (fits.parameters_of(name, kind, papers=True) for kind in kinds)
    assert "shrinkage" in new
    assert "regularization" not in new
    assert "shrinkage" not in old
    assert ("regularization" in old) == (new["shrinkage"] > 0)


def test_records_of_the_same_commits_are_joined(tmp_path):
    def record(commit, **fitted):
        return {"commit": commit, "against": "old", "fits": fitted, "fits_before": fitted}

    path = tmp_path / "record.json"
    path.write_text(json.dumps(record("a", **{"mmc wine": 1, "lmnn iris": 2})))
    names = list(fits.joined(path, record("a", **{"lmnn wine": 3}))["fits"])
    assert names == ["lmnn iris", "lmnn wine", "mmc wine"]
    assert list(fits.joined(path, record("b", **{"lmnn wine": 3}))["fits"]) == ["lmnn wine"]


def test_the_page_marks_the_slower_fits():
    machine = {"cpu": "one", "cores": 2, "system": "Linux"}
    record = {"commit": "b" * 12, "against": "a" * 12, "machine": machine, "date": "today"}
    slower = FIT | {"seconds": 1.3, "user_seconds": 1.2}
    record |= {"versions": {}, "fits_before": {NAME: FIT}, "fits": {NAME: slower}}
    page = fits.page(record)
    assert "| **1.30** |" in page
    assert f"above {fits.SLOWER} in 1; of these, 1 took" in page
