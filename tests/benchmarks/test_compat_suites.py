"""The other libraries' tests: laid out, run and counted, on a small suite of our own."""

import json

import pytest

from benchmarks import compat_suites

TESTS = """
import pytest
from metric_learn import LMNN
from metric_learn._util import _missing_function
from metric_learn.base_metric import _PairsClassifierMixin


def test_passes():
    with pytest.warns(None) as record:
        assert LMNN(n_neighbors=2).n_neighbors == 2
    assert len(record) == 0


@pytest.mark.parametrize("k", [1, 2])
def test_raise_big_number_of_features(k):
    assert k == 1


def test_calls_what_is_not_there():
    with pytest.raises(ValueError):
        _missing_function()


def test_asserts_nothing():
    LMNN()


@pytest.mark.skip
def test_skipped():
    assert False
"""


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "metric-learn"
    (folder / "test").mkdir(parents=True)
    (folder / "test" / "test_small.py").write_text(TESTS)
    (folder / "metric_learn").mkdir()
    (folder / "metric_learn" / "sklearn_shims.py").touch()
    return folder


def test_tests_are_counted_and_failures_listed_with_their_reason(source, tmp_path, capsys):
    output = tmp_path / "record.json"
    compat_suites.main(
        ["--suite", "metric_learn", "--source", str(source), "--output", str(output)]
    )
    (found,) = json.loads(output.read_text())["suites"]
    counts = {key: found[key] for key in ("tests", "passed", "asserting", "asserting_passed")}
    assert counts == {"tests": 5, "passed": 3, "asserting": 4, "asserting_passed": 2}
    assert found["skipped"] == 1
    assert [test["reason"] for test in found["failed"]] == [
        "nearfar's SCML takes fewer triplets than features",
        None,
    ]
    assert "nearfar has no private function _missing_function" in found["failed"][1]["message"]
    assert "3 of     5 pass (60.0 %)" in capsys.readouterr().out
