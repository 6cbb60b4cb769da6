"""Adapted embeddings, on principal components of digits in place of texts.

Everything of it runs but the encoder, which is too large for a test.
"""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from nearfar import LMNN

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def embeddings():
    images, y = load_digits(return_X_y=True)
    X = PCA(32, random_state=0).fit_transform(images).astype(np.float32)
    return {"X": X[:800], "y": y[:800], "queries": X[800:1100], "truth": y[800:1100]}


@pytest.fixture(scope="module")
def benchmark():
    from benchmarks import newsgroups

    return newsgroups


@pytest.mark.parametrize("deployed", ["by_faiss", "by_hnswlib", "by_onnx"])
def test_every_store_returns_the_nearest(benchmark, embeddings, deployed):
    if deployed == "by_hnswlib":
        pytest.importorskip("hnswlib", reason="pip install 'nearfar[hnswlib]'")
    X, y, queries = (embeddings[name] for name in ("X", "y", "queries"))
    model = LMNN(n_components=10).fit(X, y)
    found = getattr(benchmark, deployed)(model, X, queries)
    assert found.shape == (300, 10)
    recall = benchmark.share_of_nearest(model, X, queries, found)
    assert recall > 0.995 if deployed == "by_hnswlib" else recall == 1
    assert benchmark.share_of_nearest(model, X, queries, found[::-1]) < 0.5


def test_the_whole_from_a_cache(embeddings, tmp_path):
    pytest.importorskip("hnswlib", reason="pip install 'nearfar[hnswlib]'")
    cache = tmp_path / "digits.npz"
    np.savez(cache, **embeddings)
    command = [sys.executable, "-W", "error", "-m", "benchmarks.newsgroups"]
    command += ["--cache", cache, "--components", "10"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("800 labelled vectors, 300 held out, 10 groups\n")
    assert re.findall(r" (\d+) dimensions", done.stdout) == ["32", "9", "10"]
    shares = [float(share) for share in re.findall(r"returns (\S+)%", done.stdout)]
    assert len(shares) == 3
    assert min(shares) > 99.5
