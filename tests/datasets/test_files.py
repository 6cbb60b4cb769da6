"""The one door: which files it opens."""

import pytest

from nearfar.datasets import load_table
from nearfar.errors import InvalidInputError


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".npy", ".npz"])
def test_a_missing_file(tmp_path, suffix):
    with pytest.raises(FileNotFoundError, match="nothing"):
        load_table(tmp_path / f"nothing{suffix}")


@pytest.mark.parametrize("name", ["table", "table.xlsx", ".csv"])
def test_an_unknown_format(name, tmp_path):
    (tmp_path / name).touch()
    with pytest.raises(InvalidInputError, match="cannot tell the format") as caught:
        load_table(tmp_path / name)
    assert "expected one of .csv, .tsv, .parquet, .npy, .npz" in str(caught.value).lower()


def test_a_missing_file_without_a_suffix_may_mean_a_built_in_set():
    message = r"^wines: there is no such file\..* load_builtin.* iris, wine; did you mean 'wine'\?$"
    with pytest.raises(InvalidInputError, match=message):
        load_table("wines")


def test_strings_are_paths_too(tmp_path):
    (tmp_path / "table.csv").write_text("a\n1\n")
    assert load_table(str(tmp_path / "table.csv"), labelled=False).X.shape == (1, 1)
