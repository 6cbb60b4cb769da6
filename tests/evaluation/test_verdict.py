"""The verdict: which method to use, from masks of errors that are made up here."""

import numpy as np
import pytest
from scipy.stats import binomtest

from nearfar.evaluation.verdict import Comparison, Row

N = 200
ROLES = {
    "Euclidean": "unlearned",
    "standardised": "unlearned",
    "LDA": "simple",
    "shrunk LDA": "simple",
    "LMNN": "model",
    "LMNN, standardised": "companion",
}


def compared(caution=None, **wrong):
    """A comparison in which each method is wrong on the given rows; methods without are missing."""
    names = dict(zip(["euclidean", "scaled", "lda", "shrunk", "lmnn", "both"], ROLES, strict=True))
    rows = [
        Row(names[key], ROLES[names[key]], 2, np.isin(np.arange(N), rows))
        for key, rows in wrong.items()
    ]
    return Comparison(tuple(rows), caution)


def test_a_clear_gain_is_one_over_every_simple_method():
    """16 rows that only LDA has wrong: p = 2 / 2**16, doubled for the two variants."""
    many, few = range(60), range(20)
    found = compared(euclidean=many, scaled=many, lda=few, shrunk=few, lmnn=few, both=range(4))
    verdict = found.verdict
    assert (verdict.kind, verdict.method) == ("use", "LMNN, standardised")
    assert verdict.p_value == pytest.approx(2 * binomtest(0, 16).pvalue)
    assert verdict.sentence == str(verdict)
    assert verdict.sentence == (
        "Use LMNN on standardised features: 2.0 % instead of 10.0 % wrong (p < 0.0001)."
    )


def test_a_gain_over_most_methods_is_no_clear_gain():
    """LDA differs from the model on no row, however bad the other distances are."""
    found = compared(euclidean=range(60), scaled=range(60), lda=range(4), lmnn=range(4)).verdict
    assert (found.kind, found.method, found.p_value) == ("keep", "LDA", 1.0)
    assert found.sentence == "No clear gain: keep LDA; LMNN makes the same mistakes."


def test_two_variants_need_a_smaller_p_value():
    """Seven rows against none: p = 2 / 2**7 = 0.016; six: 0.031, and 0.063 if doubled."""
    for differing, alone, of_two in ((7, "use", "use"), (6, "use", "keep")):
        wrong = {"euclidean": range(10 + differing), "lmnn": range(10)}
        assert compared(**wrong).verdict.kind == alone
        assert compared(**wrong, both=range(10 + differing)).verdict.kind == of_two


def test_few_differing_rows_could_be_chance():
    found = compared(euclidean=range(13), lmnn=range(10)).verdict
    assert found.sentence == (
        "No clear gain: keep the Euclidean distance; LMNN has 5.0 % instead of 6.5 % wrong, which"
        " could be chance: they disagree on only 3 of 200 rows (p = 0.25)."
    )


def test_many_differing_rows_are_not_called_few():
    found = compared(euclidean=range(40), lmnn=range(21, 60)).verdict
    assert "they disagree on 41 of 200 rows (p = 1)" in compared(
        euclidean=range(41), lmnn=range(21, 61)
    ).verdict.sentence.replace("only ", "")
    assert "only" not in found.sentence


def test_no_mistakes_at_all():
    found = compared(euclidean=[], lmnn=[]).verdict
    assert found.sentence == "No clear gain: keep the Euclidean distance; neither makes a mistake."


def test_a_harmful_model_looks_harmful():
    wrong = {"euclidean": range(60), "scaled": range(9), "lda": range(9), "lmnn": range(40)}
    found = compared(**wrong).verdict
    assert (found.kind, found.method) == ("harmful", "standardised")
    assert found.p_value == pytest.approx(2 * binomtest(0, 31).pvalue)
    assert found.sentence == (
        "Do not use LMNN: learning makes it worse, 20.0 % instead of 4.5 % wrong with standardised"
        " features (p < 0.0001)."
    )


def test_a_harmful_model_may_have_a_useful_companion():
    wrong = {"euclidean": range(30), "scaled": range(30), "lmnn": range(60), "both": range(5)}
    found = compared(**wrong).verdict
    assert (found.kind, found.method) == ("harmful", "LMNN, standardised")
    assert found.sentence.startswith("Do not use LMNN: learning makes it worse, 30.0 % instead of")
    assert found.sentence.endswith(
        " Use LMNN on standardised features: 2.5 % instead of 15.0 % wrong (p < 0.0001)."
    )


def test_worse_than_lda_alone_is_not_harmful():
    """Learning still gains over what learns nothing."""
    found = compared(euclidean=range(60), scaled=range(60), lda=range(2), lmnn=range(30)).verdict
    assert found.sentence == "No clear gain: keep LDA; LMNN has 15.0 % instead of 1.0 % wrong."


@pytest.mark.parametrize(("extra", "kept"), [(0, "Euclidean"), (1, "Euclidean"), (2, "LDA")])
def test_the_simplest_within_a_standard_error_is_kept(extra, kept):
    """One row against none is a standard error, √1; two rows are more, since √2 < 2."""
    wrong = {"euclidean": range(10 + extra), "lda": range(10), "lmnn": range(10)}
    assert compared(**wrong).verdict.method == kept


def test_errors_have_the_digits_that_tell_them_apart():
    mask = np.arange(10_000)
    rows = (
        Row("Euclidean", "unlearned", 2, mask < 102),
        Row("LMNN", "model", 2, mask < 101),
    )
    assert "LMNN has 1.01 % instead of 1.02 % wrong" in Comparison(rows).verdict.sentence


def test_rows_that_cannot_judge_give_no_verdict():
    found = compared("no row was held out", euclidean=range(60), lmnn=range(4)).verdict
    assert found == ("none", "No verdict: no row was held out.", None, None)


def test_methods_that_were_not_computed_do_not_count():
    rows = [*compared(euclidean=range(60), lmnn=range(4)).rows]
    rows.insert(1, Row("LDA", "simple", reason="no class varies"))
    assert Comparison(tuple(rows)).verdict.kind == "use"
    assert rows[1].error is None
    assert rows[1].interval is None
    assert rows[1].as_dict()["reason"] == "no class varies"


def test_changes_are_those_of_the_model():
    found = compared(euclidean=range(10), lmnn=range(8, 12))
    assert found.changes(found.rows[0])[:2] == (8, 2)
