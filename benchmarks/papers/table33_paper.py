"""Table 3.3 of [weinberger2007]: test errors of support vector machines in percent.

[weinberger2007] Weinberger, Metric learning with convex optimization, PhD thesis, University of
Pennsylvania, 2007.
"""

SPLITS = 10
POINTS = 900  # of both digits together
TEST = 0.1
KERNELS = {
    "linear": "linear",
    "polynomial": "polynomial, p = 2",
    "gaussian": "Gaussian, σ = 1",
    "mvu": "MVU, k = 4",
}
# by digits, in the order of KERNELS
PAPER = {
    "1v2": (0.00, 0.00, 0.14, 0.59),
    "1v3": (0.23, 0.00, 0.35, 1.73),
    "2v8": (2.18, 1.12, 0.63, 3.37),
    "8v9": (1.00, 0.54, 0.29, 1.27),
}
