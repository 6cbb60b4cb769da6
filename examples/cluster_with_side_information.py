"""Cluster with side information: k-means before and after MMC has seen a few pairs.

Somebody compares some pairs of points and says of each whether both belong together. MMC learns a
metric from that, k-means clusters all points under it, and the adjusted Rand index (1: the true
classes, 0: chance) tells how well. The classes are used for these answers and for the index, but
for nothing else::

    python examples/cluster_with_side_information.py
    python examples/cluster_with_side_information.py --share 0.1 --data iris wine

Two columns are k-means alone, on the features as given and on standardised ones; the third is
k-means after MMC on standardised ones. No parameter is chosen for a data set. Side information need
not help: MMC looks for the few directions that part far pairs most, often a single one. It loses
where plain features show all clusters already (wine, standardised), and where many classes need
many directions (digits).
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from nearfar import MMC, make_pairs

DATA = {
    "iris": load_iris,
    "wine": load_wine,
    "breast_cancer": load_breast_cancer,
    "digits": load_digits,
}
REGULARIZATION = 0.1  # needed where there are fewer near pairs than features
COLUMNS = ("as given", "standardised", "after MMC")


def agreement(points, y, seed):
    """The adjusted Rand index of k-means with as many clusters as there are classes."""
    clusters = KMeans(len(np.unique(y)), n_init=10, random_state=seed).fit_predict(points)
    return adjusted_rand_score(y, clusters)


def compared(X, y, share, seed):
    """The index before, on features as given and standardised, and after MMC on some pairs.

    As many near and as many far pairs are told as ``share`` of the number of points.
    """
    standardised = StandardScaler().fit_transform(X)
    pairs, kinds = make_pairs(standardised, y, round(share * len(X)), random_state=seed)
    metric = MMC(regularization=REGULARIZATION).fit(pairs, kinds)
    images = metric.transform(standardised)
    return [agreement(points, y, seed) for points in (X, standardised, images)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--share", type=float, default=0.3, help="near and far pairs, per point")
    parser.add_argument("--seeds", type=int, default=10, help="draws of pairs to repeat it with")
    options = parser.parse_args()
    print(f"adjusted Rand index of k-means, mean and deviation of {options.seeds} draws of pairs")
    print(f"{'':<15}{'pairs':>9}" + "".join(f"{column:>16}" for column in COLUMNS) + "   helped")
    for name in options.data:
        X, y = DATA[name](return_X_y=True)
        found = np.array([compared(X, y, options.share, seed) for seed in range(options.seeds)])
        cells = [
            f"{mean:.3f} ± {deviation:.3f}"
            for mean, deviation in zip(found.mean(axis=0), found.std(axis=0), strict=True)
        ]
        helped = np.mean(found[:, 2] > found[:, 1])
        told = round(options.share * len(X))
        print(
            f"{name:<15}{f'2 x {told}':>9}" + "".join(f"{c:>16}" for c in cells) + f"{helped:>9.0%}"
        )


if __name__ == "__main__":
    main()
