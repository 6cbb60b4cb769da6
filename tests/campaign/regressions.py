"""What campaigns have found, shrunk: learner, parameters and data, by what was wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.campaign.strategies import Data, data

CUBE = [[0, 1, 1], [0, 0, 1], [1, 0, 1], [1, 1, 1], [1, 1, 0], [0, 0, 0], [0, 1, 1], [0, 1, 0]]
LEVELS = [[1, 1, 0], [0, 1, 1], [0, 1, 0], [0, 1, 1], [0, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]]
WIDE = [
    [0, 1, 1, 0, 1, 0, 1, 1, 0, 1, 1],
    [1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1],
    [1, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0],
    [1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0],
    [0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0],
    [1, 0, 0, 1, 0, 1, 0, 1, 1, 1, 1],
    [0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 1],
    [1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0],
]
SHORT = [
    [-1.21, -0.541, -0.239, 0.455, -0.078, 1.671],
    [0.292, 0.108, 1.104, -1.722, -0.409, 0.29],
    [-0.891, -1.778, -0.854, 0.62, -1.164, -0.961],
]
WAVE = [-0.132, 0.105, 0.362, 0.947, -1.265, 0.041, -0.219, -0.732, -0.316, 1.043, 1.366]
UNITS = np.array(
    [[1.26, -1.32, 6.4], [1.05, -5.36, 3.62], [13.0, 9.47, -7.04], [-12.6, -6.2, 0.41]]
)
UNITS = UNITS * [1e-204, 1e-67, 1e136]
DEAD = 1e-33 * (1.7 + np.sin(1 + np.arange(8) ** 2))
TWINS = np.array([0.126, 0.126, -0.132, -0.132, 0.126, -0.132, -0.132])
NOISE = np.array([0.0, 0.84, -0.76, 0.41, -0.29, -0.13, -0.99])
FAR = np.random.default_rng(0).normal(size=(12, 4)).round(2)
FAR[3] = 1e9
FLOORED = [
    [-1.611, -1.832, 0.458],
    [-0.484, -1.717, 1.609],
    [1.126, -1.273, -0.261],
    [-0.7, 0.48, -0.449],
    [-0.345, 0.739, 0.258],
    [-0.584, -1.265, 0.937],
    [0.484, -0.01, 1.17],
    [1.454, -0.765, 0.802],
    [-1.067, 0.822, -0.388],
]
RARE = [1, 1, 0, 0, 0, 0, 0, 0]

REGRESSIONS: dict[str, tuple[str, dict[str, Any], Data]] = {
    "the trace counted directions that no points span": (
        "MCML",
        {"shrinkage": 0.2, "init": "auto"},
        data(WIDE, [0, 1, 2, 0, 1, 2, 0, 1]),
    ),
    "a feature of few entries beside rounding errors was noise (MCML)": (
        "KernelMCML",
        {"kernel": "linear", "shrinkage": 0.3},
        data([*CUBE, [1, 1, 0]], [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    ),
    "a feature of few entries beside rounding errors was noise (LMNN)": (
        "KernelLMNN",
        {"kernel": "rbf", "n_neighbors": 10, "push_weight": 0.9, "shrinkage": 0.0},
        data([*LEVELS, [1, 1, 1], [0, 1, 0]], [0, 1] * 5),
    ),
    "few levels ended at the zero map": (
        "LMNN",
        {"n_neighbors": 3, "push_weight": 0.5, "shrinkage": 0.0, "init": "auto"},
        data([[2], [1], [1], [0], [0], [0], [0], [0]], [0, 1, 1, 1, 1, 1, 1, 1]),
    ),
    "worse than the identity": (
        "LMNN",
        {"n_neighbors": 1, "push_weight": 0.2, "shrinkage": 0.0, "init": "identity"},
        data(
            [[-0.123], [0.015], [0.667], [0.106], [-0.475], [0.94], [1.227], [2.116]],
            [1, 0, 0, 0, 0, 0, 0, 0],
        ),
    ),
    "a gap below zero": (
        "KernelLMNN",
        {"kernel": "linear", "n_neighbors": 1, "push_weight": 0.5, "shrinkage": 0.0},
        data(
            [[0.126], [-0.132], [0.64], [0.105], [-0.536], [0.362], [1.304], [0.947], [-0.704]],
            [0, 1, 0, 1, 0, 1, 0, 1, 0],
        ),
    ),
    "neighbours were looked for before the range was checked": (
        "MultiMetricLMNN",
        {"n_neighbors": 2, "push_weight": 0.5, "shrinkage": 0.0},
        data([[1e167], [2e167], [4e167], [7e167]], [0, 0, 1, 1]),
    ),
    "equal points kept a metric whose trace was not counted": (
        "MCML",
        {"shrinkage": 0.2, "init": "identity"},
        data([[0.0]] * 5, [1, 1, 0, 0, 0]),
    ),
    "converged with a gap above the tolerance": (
        "MCML",
        {"shrinkage": 0.0, "init": "auto"},
        data([*SHORT, [1e12] * 6], [0, 1, 0, 1], "float32"),
    ),
    "a far pair that differs in a dead feature only": (
        "DMLEig",
        {"shrinkage": 0.0},
        data(np.column_stack([DEAD, [7, 6, 5, 8, 8, 7, 8, 5]]), RARE),
    ),
    "a ridge beside a dead and a constant feature": (
        "MMC",
        {"shrinkage": 0.01 / 1.01},
        data(
            np.column_stack([DEAD, [0, 2, 3, 4, 3, 0, 2, 0], [4, 4, 0, 1, 1, 4, 0, 0], [3] * 8])
            * [1e-267, 1e-12, 1e9, 1],
            RARE,
        ),
    ),
    "a ridge in units of 1e66 of most features": (
        "MMC",
        {"shrinkage": 0.01 / 1.01},
        data(
            np.random.default_rng(0).normal(size=(4, 13)).round(3)
            * ([1e-301] * 9 + [1e-33] * 3 + [1e33]),
            [0, 1, 0, 1],
        ),
    ),
    "one column dead": (
        "RCA",
        {"shrinkage": 0.0},
        data(np.column_stack([DEAD, [1, 2, 1, 2, 3, 1, 2, 3]]), [1, 3, 2, 0, 1, 2, 0, 1]),
    ),
    "a first step that overflowed": (
        "MultiMetricLMNN",
        {"n_neighbors": 4, "push_weight": 0.5, "shrinkage": 0.0},
        data([[2.54e-20, 1], [2.61e-20, 1], [1e9, 1], [1.16e-20, 1]], [1, 1, 1, 3]),
    ),
    "metrics that nearly agree were replaced by the first": (
        "MultiMetricLMNN",
        {"n_neighbors": 1, "push_weight": 0.5, "shrinkage": 0.7},
        data([[1.254, 0.777], [0.965, -1.082], [0.867, -0.168], [-0.19, 1.121]], [0, 1, 0, 1]),
    ),
    "a constant feature far from the origin": (
        "KernelMMC",
        {"kernel": "linear", "shrinkage": 0.1},
        data([[0, 3e33]] * 10 + [[1e-33, 3e33]], [0, 1] * 5 + [0]),
    ),
    "a constant feature whose square overflows": (
        "KernelMMC",
        {"kernel": "linear", "shrinkage": 0.1},
        data([[0, 3e170]] * 10 + [[1e-33, 3e170]], [0, 1] * 5 + [0]),
    ),
    "a link whose square overflows": (
        "MVU",
        {"constraints": "shrink", "n_neighbors": 2, "angles": False, "on_disconnected": "link"},
        data(
            [[0.25, 0], [0.26, 0], [0.07, 0], [0.12, 1e170], [0.07, 1e170], [0.25, 1e170]], RARE[:6]
        ),
    ),
    "a gamma from a mean far from the origin": (
        "KernelMMC",
        {"kernel": "rbf", "shrinkage": 0.1 / 1.1},
        data(2.0**40 + np.random.default_rng(0).normal(size=(9, 3)), [1, 2, 0] * 3),
    ),
    "a far pair that an origin far away made equal": (
        "DMLEig",
        {"shrinkage": 0.0},
        data([[1e33], [2e33], [0], [1e33], [0], [1e6]], [0, 1, 2, 0, 1, 2]),
    ),
    "an outlier, and more features than points": (
        "RCA",
        {"shrinkage": 0.0},
        data(np.vstack([np.pad(WIDE, [(0, 0), (0, 4)], "wrap"), np.full(15, 1e6)]), [0, 1, 2] * 3),
    ),
    "features whose squares are denormal": (
        "RCA",
        {"shrinkage": 0.1},
        data(
            np.random.default_rng(0).normal(size=(9, 3)).round(3) * [1e-135, 1e-150, 1e-160],
            [0, 1, 2] * 3,
        ),
    ),
    "a feature whose squares are zero was left out unsaid": (
        "RCA",
        {"shrinkage": 0.0},
        data(
            np.random.default_rng(0).normal(size=(9, 3)).round(3) * [1e-139, 1e-151, 1e-162],
            [0, 1, 2] * 3,
        ),
    ),
    "near pairs of equal points, whose mean is rounded": (
        "DMLEig",
        {"shrinkage": 0.0},
        data(
            np.repeat([[-0.502, -0.282], [0.646, -0.128], [0.1, 0.841]], 3, axis=0),
            [0] * 3 + [1] * 3 + [2] * 3,
        ),
    ),
    "soft neighbours that miss feasibility by rounding": (
        "MCML",
        {"shrinkage": 0.0, "init": "auto"},
        data([[0.667, 2.233], [0.958, 1.97], [0.479, 1.679], [0.863, 1.438]], [1, 0, 0, 0]),
    ),
    "a ridge so small that rounding hid it": (
        "DMLEig",
        {"shrinkage": 0.0},
        Data(
            np.array(
                [
                    [1000.0, 1000.0, 1000.0, 1000.0, 1000.0],
                    [0.362, 1.304, 0.947, -0.704, -1.265],
                    [-0.623, 0.041, -2.325, -0.219, -1.246],
                    [-0.732, -0.544, -0.316, 0.412, 1.043],
                ]
            ),
            np.array([0, 1, 1, 1]),
        ),
    ),
    "a constant feature hid that squares leave the range": (
        "DMLEig",
        {"shrinkage": 0.0},
        data([[3, -1.32e-301], [3, 1.05e-301], [3, 3.62e-301], [3, 9.47e-301]], [0, 1, 0, 1]),
    ),
    "a trace of directions that kernel values hardly resolve": (
        "KernelMMC",
        {"kernel": "rbf", "shrinkage": 0.7},
        data([[x] for x in WAVE], [0, 1] * 5 + [0]),
    ),
    "a map whose rounding to float32 is all of the gap": (
        "RCA",
        {"shrinkage": 0.0},
        data(
            [*([0, 0, 1e-5 * np.sin(i**2)] for i in range(11)), [7, 1, 7.00001]],
            [0, 1] * 6,
            "float32",
        ),
    ),
    "a ridge whose square root is in units of 1e203 of a feature (DML-eig)": (
        "DMLEig",
        {"shrinkage": 0.0},
        data(UNITS, [0, 1, 0, 1]),
    ),
    "a ridge whose square root is in units of 1e203 of a feature (MMC)": (
        "MMC",
        {"shrinkage": 0.05},
        data(UNITS, [0, 1, 0, 1]),
    ),
    "near pairs whose differences are 1e-14 of those of far pairs (MMC)": (
        "MMC",
        {"shrinkage": 0.05},
        data(np.outer(TWINS, [1, 1]) + np.outer(NOISE, [0, 1e-14]), [0, 0, 1, 1, 0, 2, 1]),
    ),
    "near pairs whose differences are 1e-14 of those of far pairs (DML-eig)": (
        "DMLEig",
        {"shrinkage": 0.05},
        data(np.outer(TWINS, [1, 1]) + np.outer(NOISE, [1e-14, 2e-14]), [0, 0, 1, 1, 0, 2, 1]),
    ),
    "Newton's step from a negligible metric, whose squares leave the range of float32": (
        "LMNN",
        {"n_neighbors": 2, "push_weight": 0.5, "shrinkage": "auto", "init": "auto"},
        data(FLOORED, [0, 1] * 4 + [0], "float32"),
    ),
    "a step from a negligible metric, longer than the range of float32": (
        "LMNN",
        {"n_neighbors": 2, "push_weight": 0.9, "shrinkage": "auto", "init": "auto"},
        data([[0.126], [-0.132], [0.64], [0.105], [-0.536]], [0, 1, 0, 1, 0], "float32"),
    ),
    "a far pair whose square is below the range of float64": (
        "DMLEig",
        {"shrinkage": 0.05},
        data([[0, 0, 0], [0, 0, 0], [0, 1e-300, 0], [1e-300, 0, 1e33]], [0, 1, 0, 1]),
    ),
    "an outlier in whose rounding the scatter of near points was lost (MCML)": (
        "MCML",
        {"shrinkage": "auto", "init": "auto"},
        data(FAR, [1, 1] + [0] * 10),
    ),
    "an outlier in whose rounding the scatter of near points was lost (LMNN)": (
        "LMNN",
        {"n_neighbors": 2, "push_weight": 0.5, "shrinkage": "auto", "init": "auto"},
        data(FAR, [1, 1] + [0] * 10),
    ),
}
