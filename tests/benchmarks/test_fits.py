"""The comparison of two versions sees what is worse, and nothing else."""

import pytest

from benchmarks import fits

NAME = "mmc wine"
FIT = {"objective": 2.0, "gap": 1e-4, "n_iter": 9, "seconds": 1.0, "tol": 1e-3}


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
