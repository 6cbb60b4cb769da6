"""The one judge of every answer: ``python -m benchmarks.mvu.evaluate FOLDER OUTPUT``.

It needs NumPy alone, works in float64, and shares no code with nearfar or any peer. Of an answer
(K, y) it takes the centred part PKP with P = I - 11'/n, less its negative eigenvalues, and finds

    variance    tr K                                                                           (1)
    violation   max_e |(K_ii - 2 K_ij + K_jj) / D_e - 1|                                        (2)
    bound       sum_e y_e / t  for the largest t, 1 at most, of those that are tried, with
                S = sum_e (y_e / D_e) a_e a_e' - t P >= 0                                       (3)
    gap         |bound - variance| / bound                                                     (4)

(3) holds for every K that keeps the lengths: 0 <= <S, K> = sum_e y_e - t tr K. A Cholesky factor of
S + s 11'/n, s its mean diagonal, proves that S is definite on what 1 is normal to.
"""

import argparse
import json
from pathlib import Path

import numpy as np

NEGATIVE = 1e-13  # share of the trace that a negative eigenvalue may have by rounding
LEAST = 1e-13  # 1 - t: tried are 0 and this times powers of 2


def definite(A):
    """Whether a centred matrix is positive definite on what 1 is normal to."""
    try:
        np.linalg.cholesky(A + np.diagonal(A).mean() / len(A))
    except np.linalg.LinAlgError:
        return False
    return True


def centred(K):
    """PKP of the symmetric part."""
    K = (K + K.T) / 2
    means = K.mean(0)
    return K - means - means[:, None] + means.mean()


def semidefinite(K):
    """A centred matrix without its negative eigenvalues."""
    n, size = len(K), NEGATIVE * np.trace(K)
    if size > 0 and definite(K + size * (np.eye(n) - 1 / n)):
        return K
    values, vectors = np.linalg.eigh(K)
    return (vectors * np.maximum(values, 0)) @ vectors.T


def laplacian(heads, tails, weights, n):
    """sum_e w_e a_e a_e'"""
    found = np.zeros((n, n))
    found[heads, tails] = -weights
    found[tails, heads] = -weights
    found[np.diag_indices(n)] = -found.sum(1)
    return found


def bound(heads, tails, squares, n, y):
    """(3), or None if no t above a half will do."""
    S = laplacian(heads, tails, y / squares, n)
    S += 1 / n
    S[np.diag_indices(n)] -= 1
    lack = 0.0
    while lack < 0.5:
        if definite(S + lack * (np.eye(n) - 1 / n)):
            return float(y.sum() / (1 - lack))
        lack = max(LEAST, 2 * lack)
    return None


def evaluate(heads, tails, squares, K, y):
    """The judgement of an answer as a dict."""
    n = len(K)
    K = semidefinite(centred(K))
    variance = float(np.trace(K))
    diagonal = np.diagonal(K)
    lengths = (diagonal[heads] + diagonal[tails] - 2 * K[heads, tails]) / squares
    upper = bound(heads, tails, squares, n, y)
    return {
        "objective": variance,
        "violation": float(np.abs(lengths - 1).max()),
        "bound": upper,
        "gap": None if upper is None else abs(upper - variance) / abs(upper),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds program.npz")
    parser.add_argument("answer", type=Path, help="holds K.npy and y.npy")
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    arguments = parser.parse_args()
    with np.load(arguments.folder / "program.npz") as program:
        edges = [program[name] for name in ("heads", "tails", "squares")]
    answer = (np.load(arguments.answer / f"{name}.npy") for name in ("K", "y"))
    arguments.output.write_text(json.dumps(evaluate(*edges, *answer)))


if __name__ == "__main__":
    main()
