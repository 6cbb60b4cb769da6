"""Learners against their inputs: the data, the command, what is saved, the verdicts, the page."""

import json

import numpy as np
import pytest

from benchmarks import never_worse, never_worse_data, never_worse_page
from benchmarks.common import UnavailableError
from nearfar.registry import ENTRIES

LEARNERS, LINEAR = never_worse.LEARNERS, never_worse.LINEAR
SOME = "inputs,standardised,LMNN"


@pytest.fixture(autouse=True)
def _no_data(monkeypatch):
    for name in ("NEARFAR_DATA", "NEARFAR_KEEL"):
        monkeypatch.delenv(name, raising=False)


def places(folder):
    return ["--results", str(folder), "--machine", "x", "--page", str(folder / "page.md")]


def saved(folder):
    return json.loads((folder / "never_worse-x.json").read_text())


def case(size="5", kind="raw", data="iris", /, **errors):
    """A case with the errors of some learners in each split; a string is a failure."""
    n_splits = max(len(found) for found in errors.values())
    splits = {
        str(number): {
            name.replace("_", " "): found[number]
            if isinstance(found[number], str)
            else [found[number], 0.5]
            for name, found in errors.items()
        }
        for number in range(n_splits)
    }
    shape = {"rows": 15, "columns": 4, "classes": 3}
    return {"data": data, "size": size, "inputs": kind, **shape, "splits": splits}


def record(*cases):
    machine = {"cpu": "a chip", "cores": 2, "memory_gb": 8, "system": "Linux x86_64"}
    versions = {"numpy": "2"}
    head = {"machine": machine, "versions": versions, "max_rows": 300, "stamps": ["abc today"]}
    return head | {"cases": list(cases)}


def page(*cases):
    return never_worse.page([record(*cases)])


# -- the learners and the data ---


def test_every_learner_of_labelled_points_takes_part():
    left_out = {entry.name for entry in ENTRIES} - set(LEARNERS)
    assert {e.learns_from for e in ENTRIES if e.name in left_out} == {
        *("numbers", "points", "metric", "neighbours", "distances")
    }
    assert "MultiMetricLMNN" not in LINEAR
    assert not [name for name in LINEAR if name.startswith("Kernel")]
    assert {"inputs", "shrunk LDA", "LMNN", "RCA"} <= set(LINEAR)
    assert len(never_worse_data.NAMES) >= 25


def test_a_split_has_so_many_labels_a_class_and_no_row_twice():
    split = never_worse_data.split("digits", "10", "raw", 3, 300)
    assert np.bincount(split.y_train).tolist() == [10] * 10
    assert len(split.X_test) == never_worse_data.TESTED_ROWS
    rows = np.concatenate([split.X_train, split.X_test])
    assert len(np.unique(rows, axis=0)) == len(rows)
    again = never_worse_data.split("digits", "10", "raw", 3, 300)
    np.testing.assert_array_equal(again.X_train, split.X_train)
    other = never_worse_data.split("digits", "10", "raw", 4, 300)
    assert not np.array_equal(other.X_train, split.X_train)


def test_sizes_that_a_set_cannot_have_are_left_out():
    """50 a class of iris are all of it, and 50 of each digit are more than 300."""
    assert never_worse_data.split("iris", "50", "raw", 0, 300) is None
    assert never_worse_data.split("digits", "50", "raw", 0, 300) is None
    assert len(never_worse_data.split("digits", "50", "raw", 0, 500).X_train) == 500
    assert len(never_worse_data.split("iris", "all", "raw", 0, 300).X_train) == 105
    assert len(never_worse_data.split("iris", "all", "raw", 0, 60).X_train) == 60


def test_training_rows_alone_standardise():
    split = never_worse_data.split("wine", "10", "standardised", 0, 300)
    np.testing.assert_allclose(split.X_train.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(split.X_train.std(axis=0), 1)
    assert abs(split.X_test.mean(axis=0)).max() > 1e-3


def test_a_folder_of_data(tmp_path, monkeypatch, rng):
    """Wide rows come down to components of the training rows, and small classes are left out."""
    X, y = rng.normal(size=(125, 300)), np.repeat([4, 7, 9], [60, 60, 5])
    np.savez(tmp_path / "usps.npz", X=X, y=y)
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    never_worse_data.load.cache_clear()
    never_worse_data.check("usps")
    split = never_worse_data.split("usps", "20", "raw", 0, 300)
    assert split.X_train.shape == (40, 39)
    assert split.X_test.shape == (80, 39)
    assert set(split.y_test) == {0, 1}
    np.testing.assert_allclose(split.X_train.mean(axis=0), 0, atol=1e-12)
    with pytest.raises(
        UnavailableError, match=r"mnist needs mnist\.npz, and NEARFAR_DATA has none"
    ):
        never_worse_data.check("mnist")
    never_worse_data.load.cache_clear()


def test_words_become_logarithms_of_unit_length(tmp_path, monkeypatch):
    counts = np.tile([[1, 0, 2], [0, 3, 0]], (10, 1))
    rows, columns = np.nonzero(counts)
    np.savez(
        tmp_path / "newsgroups20.npz",
        data=counts[rows, columns],
        indices=columns,
        indptr=np.r_[0, np.cumsum((counts > 0).sum(axis=1))],
        shape=counts.shape,
        y=np.tile([0, 1], 10),
    )
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path))
    never_worse_data.load.cache_clear()
    X, y = never_worse_data.load("newsgroups")
    np.testing.assert_allclose(X[0], np.log([2, 1, 3]) / np.hypot(np.log(2), np.log(3)))
    np.testing.assert_allclose(X[1], [0, 1, 0])
    assert y.tolist() == [0, 1] * 10
    never_worse_data.load.cache_clear()


def test_a_folder_of_keel(tmp_path, monkeypatch):
    lines = [f"{i}, {i * i}.5, {'good' if i % 2 else 'bad'}" for i in range(30)]
    (tmp_path / "bupa.dat").write_text("\n".join(lines) + "\n")
    with pytest.raises(UnavailableError, match="NEARFAR_KEEL is not set; set it to the folder"):
        never_worse_data.check("bupa")
    monkeypatch.setenv("NEARFAR_KEEL", str(tmp_path))
    never_worse_data.load.cache_clear()
    X, y = never_worse_data.load("bupa")
    assert X[3].tolist() == [3, 9.5]
    assert y.tolist() == [0, 1] * 15
    with pytest.raises(UnavailableError, match=r"pima needs pima\.dat, and NEARFAR_KEEL has none"):
        never_worse_data.check("pima")
    never_worse_data.load.cache_clear()


# -- the command ---


def test_smoke_run_passes(capsys, monkeypatch):
    monkeypatch.setitem(never_worse.SMOKE, "sets", ["iris"])
    assert never_worse.main(["--smoke", "--learners", SOME]) == 0
    printed = capsys.readouterr().out
    assert "1 sets, 2 cases, 2 splits, at most 500 rows to learn from: iris." in printed
    assert "| LMNN | 2 |" in printed
    assert "No fit failed." in printed


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    some = [*places(tmp_path), "--sets", "iris", "--sizes", "5,10", "--splits", "1"]
    assert never_worse.main([*some, "--learners", "inputs"]) == 0
    first = saved(tmp_path)["cases"]
    assert [c["size"] for c in first] == ["5", "5", "10", "10"]
    assert never_worse.main([*some, "--learners", "inputs,LDA"]) == 0
    second = saved(tmp_path)["cases"]
    for old, new in zip(first, second, strict=True):
        assert new["splits"]["0"]["inputs"] == old["splits"]["0"]["inputs"]
        assert list(new["splits"]["0"]) == ["inputs", "LDA"]
    with pytest.raises(SystemExit, match="measured with --max-rows 500, not 30"):
        never_worse.main([*some, "--max-rows", "30"])


def test_processes_give_what_one_gives(tmp_path):
    found = []
    for jobs in ("1", "2"):
        some = ["--sets", "iris", "--sizes", "5", "--splits", "2", "--learners", SOME]
        assert never_worse.main([*places(tmp_path / jobs), *some, "--jobs", jobs]) == 0
        cases = saved(tmp_path / jobs)["cases"]
        found.append([[s[n][0] for s in c["splits"].values() for n in s] for c in cases])
    assert found[0] == found[1]


def test_failures_are_saved_and_named(tmp_path, monkeypatch, capsys):
    """A refusal is a result; any other exception also ends the command with exit code 1."""

    def broken():
        raise ZeroDivisionError("no such luck")

    some = [*places(tmp_path), "--sets", "wine", "--sizes", "5", "--splits", "1"]
    monkeypatch.setitem(never_worse.BASELINES, "LDA", broken)
    assert never_worse.main([*some, "--learners", "inputs,LDA"]) == 1
    assert "wine, 5, raw, split 0: LDA: ZeroDivisionError: no such luck" in capsys.readouterr().err
    assert saved(tmp_path)["cases"][0]["splits"]["0"]["LDA"] == "ZeroDivisionError: no such luck"
    text = (tmp_path / "page.md").read_text()
    assert "| LDA | ZeroDivisionError | 2 | wine, 5 a class, raw; wine, 5 a class, stand" in text

    def refused():
        raise never_worse.nearfar.errors.InvalidInputError("too few rows")

    monkeypatch.setitem(never_worse.BASELINES, "shrunk LDA", refused)
    assert never_worse.main([*some, "--learners", "inputs,shrunk LDA"]) == 0
    assert "| shrunk LDA | InvalidInputError | 2 |" in (tmp_path / "page.md").read_text()


def test_slow_learners_keep_to_few_rows():
    found = never_worse.measure(never_worse.Case("iris", "20", "raw"), 0, ["KernelPOLA"], 300)
    assert found == {}
    assert never_worse.most_rows("KernelPOLA") < 60 < never_worse.most_rows("KernelLMNN")


def test_nothing_begins_after_the_last_second(tmp_path):
    some = [*places(tmp_path), "--sets", "iris", "--max-seconds", "-1"]
    assert never_worse.main(some) == 0
    assert list(tmp_path.glob("*.json")) == []
    assert (tmp_path / "page.md").read_text() == never_worse_page.INTRODUCTION


def test_data_without_its_file_is_left_out(tmp_path, capsys):
    assert never_worse.main([*places(tmp_path), "--sets", "usps,pima"]) == 0
    printed = capsys.readouterr().out
    assert "usps: left out: usps needs its data file, and NEARFAR_DATA is not set" in printed
    assert "pima: left out: pima needs its data file, and NEARFAR_KEEL is not set" in printed


@pytest.mark.parametrize("option", ["--sets", "--learners", "--sizes"])
def test_an_unknown_name_is_told(option, capsys):
    with pytest.raises(SystemExit, match="2"):
        never_worse.parse([option, "mnsit"])
    assert "no 'mnsit'; expected some of" in capsys.readouterr().err


# -- the verdicts and the page ---


def test_worse_is_by_more_than_one_standard_error_of_the_paired_differences():
    """Differences of 1 and 3 points: mean 2, deviation sqrt(2) / sqrt(2) = 1."""
    found = never_worse_page.compare(case(LMNN=[0.11, 0.23], inputs=[0.10, 0.20]), "LMNN", "inputs")
    assert found.mean == pytest.approx(2)
    assert found.deviation == pytest.approx(1)
    assert found.errors == pytest.approx((17, 15))
    assert found.worse
    apart = never_worse_page.compare(case(LMNN=[0.1, 0.3], inputs=[0.2, 0.1]), "LMNN", "inputs")
    assert (apart.mean, apart.worse) == (pytest.approx(5), False)  # ± 15
    level = never_worse_page.compare(case(LMNN=[0.2, 0.3], inputs=[0.1, 0.2]), "LMNN", "inputs")
    assert level.clearly_worse
    same = never_worse_page.compare(case(LMNN=[0.2, 0.3], inputs=[0.2, 0.3]), "LMNN", "inputs")
    assert not same.worse


def test_failed_splits_are_left_out_of_the_comparison():
    some = case(LMNN=[0.2, "ValueError: no", 0.2], inputs=[0.1, 0.9, 0.1])
    assert never_worse_page.compare(some, "LMNN", "inputs").mean == pytest.approx(10)
    one = case(LMNN=[0.2, "ValueError: no"], inputs=[0.1, 0.9])
    assert never_worse_page.compare(one, "LMNN", "inputs") is None


def test_best_linear_method_is_not_a_kernel_and_has_all_splits():
    some = case(
        LMNN=[0.2, 0.2], LDA=[0.1, 0.3], KernelLMNN=[0, 0], NCA=[0, "ValueError: no"], inputs=[1, 1]
    )
    table = never_worse_page.table_of(some, "LMNN", LINEAR)
    assert table.tolist() == [[20, 20], [100, 100], [10, 30]]


def test_the_best_method_of_a_split_may_be_chosen_by_the_others():
    """Two methods alike but for luck: the best of all splits is better than either was expected.

    In each split the other one wins, so that the choice by the two others has no luck.
    """
    table = np.array([[2.0, 2, 2], [1, 4, 1], [3, 1, 3]])
    assert never_worse_page.behind_best(table).tolist() == [0, 0, 0]
    table = np.array([[2.0, 2, 2], [0, 3, 0], [3, 1, 3]])
    assert never_worse_page.behind_best(table).tolist() == [2, -1, 2]
    assert never_worse_page.behind_best_of_others(table).tolist() == [2 - 0, 2 - 3, 2 - 0]
    table = np.array([[5.0, 5, 5], [0, 6, 6], [6, 0, 6], [6, 6, 0]])
    assert never_worse_page.behind_best(table).tolist() == [5, -1, -1]
    assert never_worse_page.behind_best_of_others(table).tolist() == [-1, -1, -1]
    assert never_worse_page.within_one(np.array([0.0, 2.0]))  # 1 ± 1
    assert not never_worse_page.within_one(np.array([1.0, 2.0]))
    assert not never_worse_page.within_one(np.array([1.0, 1.0]))
    assert never_worse_page.within_one(np.array([0.0, 0.0]))


def test_the_page_compares_with_the_baselines_alone():
    """NCA is better in both cases, LDA in the second; in their mean LMNN and LDA are level."""
    first = case(LMNN=[0.1, 0.1], inputs=[0.3, 0.3], LDA=[0.2, 0.2], NCA=[0.0, 0.0])
    second = case("all", LMNN=[0.2, 0.2], inputs=[0.3, 0.3], LDA=[0.1, 0.1], NCA=[0.0, 0.0])
    text = page(first, second)
    assert "in 0 (0 %) and 0 (0 %) of 1 sets, in the two senses." in text
    assert (
        "Beside inputs, standardised, LDA and shrunk LDA alone, LMNN is the best or within one"
        " standard error of the best in 1 (50 %) and 1 (50 %) of 2 cases, and in 1 (100 %) and"
        " 1 (100 %) of 1 sets, in the two senses.\n"
    ) in text


def test_page_counts_worse_cases_and_names_them():
    better = case(LMNN=[0.1, 0.1], inputs=[0.3, 0.3])
    worse = case("all", "standardised", LMNN=[0.5, 0.5], inputs=[0.4, 0.4])
    text = page(better, worse)
    assert "1 sets, 2 cases, 2 splits, at most 300 rows to learn from: iris.\n" in text
    row = "| LMNN | 2 | 1 (50 %) | 1 (50 %) | -5.0 | +10.0 (iris, all, standardised) | 1 (50 %) |"
    assert f"{row} 1 (50 %) |" in text
    both = "| 5 | raw | 1 | 0 (0 %) | 1 (100 %) | 1 (100 %) |\n| all | standardised | 1 | 1 (100 %)"
    assert both in text
    assert "in 1 (100 %) and 1 (100 %) of 1 sets, in the two senses." in text
    assert "| iris | 30.0 | LMNN | 30.0 |  | yes | yes |" in text
    assert "- **LMNN**, 1: iris, all, standardised: +10.0 ± 0.0.\n" in text
    assert "| iris, raw | 15 × 4, 3 | 30.0 | **10.0** |" in text
    assert "No fit failed." in text


def test_page_joins_the_learners_of_several_records():
    one, other = case(inputs=[0.1, 0.2]), case(LMNN=[0.3])
    joined = case(inputs=[0.1, 0.2], LMNN=[0.3, 0.4])
    del joined["splits"]["1"]["LMNN"]
    assert never_worse_page.merged([record(one), record(other)]) == [joined]


def test_a_split_in_which_the_inputs_were_not_measured_is_left_out():
    """LDA is better wherever both were measured; a third split of LMNN alone does not hide it."""
    whole = case(inputs=[0.3, 0.3], LDA=[0.1, 0.1], LMNN=[0.2, 0.2])
    more = case(LMNN=[0.2, 0.2, 0.1])
    (found,) = never_worse_page.merged([record(whole), record(more)])
    assert list(found["splits"]) == ["0", "1"]
    assert never_worse_page.near_best([found], "LMNN", LINEAR) == ["0 (0 %)", "0 (0 %)"]
    assert "| iris, raw | 15 × 4, 3 | 30.0 | **10.0** | 20.0 |" in never_worse.page(
        [record(whole), record(more)]
    )
