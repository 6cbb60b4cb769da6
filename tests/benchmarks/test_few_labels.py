"""Few labels on embeddings: principal components of digits stand in for texts."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from benchmarks import few_labels


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    images, y = load_digits(return_X_y=True)
    X = PCA(32, random_state=0).fit_transform(images)
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    X = np.c_[X, np.full(len(X), 3.0)]  # an output that never varies
    np.savez(path, X=X[:500], y=y[:500], queries=X[500:700], truth=y[500:700])
    return path


def test_draws_hold_so_many_labels_and_no_row_twice(cache):
    X, y = few_labels.load(cache)
    assert X.shape == (700, 32)
    known, new = few_labels.draw(y, 5, seed=1)
    assert np.unique(y[known], return_counts=True)[1].tolist() == [5] * 10
    assert len(new) == 650
    assert len(np.union1d(known, new)) == 700


def test_discriminants_have_the_variance_of_the_embeddings(cache):
    """The first rows are the identity, the others nine discriminants at the same variance."""
    X, y = few_labels.load(cache)
    L = few_labels.with_discriminants(X[:100], y[:100])
    np.testing.assert_array_equal(L[:32], np.eye(32))
    Z = X[:100] @ L.T
    assert Z.shape == (100, 41)
    assert Z[:, 32:].var(axis=0).sum() == pytest.approx(Z[:, :32].var(axis=0).sum())


def test_the_whole(cache, tmp_path, capsys):
    places = ["--record", str(tmp_path / "r.json"), "--page", str(tmp_path / "p.md")]
    some = [*places, "--cache", str(cache), "--labels", "2,5"]
    assert few_labels.main([*some, "--draws", "1"]) == 0
    first = json.loads((tmp_path / "r.json").read_text())["runs"]
    assert len(first) == 2 * len(few_labels.METHODS)
    capsys.readouterr()
    assert few_labels.main([*some, "--draws", "1"]) == 0
    assert capsys.readouterr().out == ""  # all was there
    text = (tmp_path / "p.md").read_text()
    assert text.startswith("# Few labels on frozen embeddings\n")
    assert "700 posts of 10 newsgroups" in text
    assert text.count("| method | 2 labels a class | 5 labels a class |") == 7
    (run,) = [r for r in first if r["labels"] == 5 and r["method"] == "as they are"]
    assert (
        f"| as they are | {100 * first[0]['new']['MRR']:.1f} | {100 * run['new']['MRR']:.1f} |"
        in text
    )
    (tmp_path / "p.md").unlink()
    assert few_labels.main([*places, "--table"]) == 0
    assert (tmp_path / "p.md").read_text() == text


def test_what_is_below_the_embeddings_is_bold_and_what_fails_is_said():
    def run(method, value, **more):
        measures = dict.fromkeys(few_labels.MEASURES, value)
        return {
            "labels": 2,
            "draw": 0,
            "method": method,
            "new": measures,
            "known": measures,
            **more,
        }

    runs = [run("as they are", 0.5, seconds=0.1), run("LMNN()", 0.4, seconds=3.0)]
    runs.append({"labels": 2, "draw": 0, "method": "shrunk LDA", "failed": "LinAlgError: no"})
    table = few_labels._table(runs, "new", "MRR")
    assert "| as they are | 50.0 |" in table
    assert "| LMNN() | **40.0** |" in table
    assert "| shrunk LDA | fails |" in table


def test_a_missing_cache_is_told(capsys):
    with pytest.raises(SystemExit, match="2"):
        few_labels.main([])
    assert "--cache names the file with the embeddings" in capsys.readouterr().err
