"""Table 2.1 of [weinberger2007]: errors in percent, active constraints, validation.

[weinberger2007] Weinberger, Metric learning with convex optimization, PhD thesis, University of
Pennsylvania, 2007.
"""

DATA = ("mnist", "20news", "letters", "isolet", "yale", "iris", "balance", "wine", "olivetti")
VALIDATED = ("20news", "yale", "iris", "olivetti")  # one metric is stopped early on 30 %

METHODS = {
    "pca": "PCA",
    "lda": "LDA",
    "lmnn": "PCA-LMNN",
    "lmnn_lda": "LDA-LMNN",
    "passes": "MUL-LMNN",
    "metrics": "MM-LMNN",
}

# fmt: off
TRAIN = {  # leave-one-out kNN, in the order of DATA
    "pca":      (1.93, 18.22, 4.67, 9.05, 34.28, 4.20, 11.06, 24.36, 4.20),
    "lda":      (6.57, 18.22, 4.33, 2.16, 2.73, 2.46, 10.65, 0.26, 0.00),
    "lmnn":     (1.19, 9.73, 3.54, 0.70, 3.54, 3.28, 9.00, 6.12, 1.31),
    "lmnn_lda": (6.62, 9.72, 3.24, 1.43, 2.32, 2.98, 9.69, 0.23, 0.01),
    "passes":   (1.15, 9.62, 2.58, 0.55, 2.73, 3.47, 7.35, 4.77, 0.23),
    "metrics":  (0.04, 7.08, 1.55, 0.00, 3.57, 3.13, 9.00, 6.12, 0.68),
}
TEST = {  # kNN
    "pca":      (2.12, 17.90, 4.63, 9.53, 34.99, 4.87, 11.97, 25.00, 2.80),
    "lda":      (6.16, 17.90, 4.34, 4.23, 4.34, 2.58, 11.84, 1.98, 10.01),
    "lmnn":     (1.72, 14.91, 3.62, 3.59, 6.48, 4.08, 9.29, 8.39, 3.28),
    "lmnn_lda": (6.17, 14.90, 3.40, 4.57, 4.91, 3.79, 10.09, 2.11, 40.72),
    "passes":   (1.69, 15.08, 2.84, 3.12, 5.83, 3.76, 7.71, 7.30, 4.83),
    "metrics":  (1.18, 14.01, 3.20, 3.08, 6.40, 4.37, 9.29, 8.39, 3.11),
}
ENERGY = {
    "pca":      (2.39, 22.50, 3.77, 12.31, 33.09, 3.82, 11.71, 50.41, 2.57),
    "lda":      (10.23, 22.50, 3.36, 5.69, 4.52, 2.63, 12.23, 2.11, 10.01),
    "lmnn":     (1.37, 13.56, 2.67, 3.55, 5.98, 4.00, 8.86, 7.67, 3.16),
    "lmnn_lda": (5.56, 13.57, 2.33, 4.49, 5.06, 2.82, 10.06, 2.04, 41.93),
    "passes":   (1.27, 14.10, 2.38, 2.91, 5.95, 3.34, 12.01, 7.85, 4.87),
    "metrics":  (1.23, 17.86, 2.84, 2.99, 6.50, 3.84, 8.88, 8.04, 3.14),
}
ACTIVE = {
    "lmnn":     (540037, 676482, 135715, 64396, 86994, 574, 41522, 10194, 3843),
    "metrics":  (305114, 101803, 18588, 135832, 30135, 1548, 31717, 748, 70),
}
# fmt: on


def figure(table, method, data):
    """The thesis' figure, or None where it has none."""
    return table[method][DATA.index(data)] if method in table else None
