"""Shapes and images on which the thesis shows what MVU does, and where it fails."""

import numpy as np
from sklearn.datasets import load_digits

from benchmarks import common

SEED = 0


def swiss_roll(n, *, turns=2.0, height=21.0, noise=0.0, seed=SEED):
    """Points (n, 3) of a roll, and how far each lies along it."""
    random = np.random.default_rng(seed)
    angle = 1.5 * np.pi * (1 + turns * random.random(n))
    roll = angle * np.cos(angle), height * random.random(n), angle * np.sin(angle)
    along = 0.5 * (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle))  # of an Archimedean spiral
    return np.column_stack(roll) + noise * random.normal(size=(n, 3)), along


def comb(n, teeth=6, length=3.0):
    """About n points (…, 2) in equal steps: teeth of a length, at distance 1 from each other."""
    step = (teeth - 1 + teeth * length) / n
    spine = np.arange(0, teeth - 1 + step / 2, step)
    tooth = np.arange(step, length + step / 2, step)
    parts = [np.column_stack([spine, 0 * spine])]
    parts += [np.column_stack([0 * tooth + number, tooth]) for number in range(teeth)]
    return np.concatenate(parts)


def trefoil(n, across=3):
    """About n points (…, 3) of a ribbon along a trefoil knot, half as wide as its steps."""

    def curve(t):
        x, y = np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t)
        return np.column_stack([x, y, -np.sin(3 * t)])

    fine = np.linspace(0, 2 * np.pi, 20001)
    travelled = np.linalg.norm(np.diff(curve(fine), axis=0), axis=1).cumsum()
    step = travelled[-1] / (n // across)
    t = np.interp(step * np.arange(n // across), np.append(0, travelled), fine)
    ahead = curve(t + 1e-6) - curve(t - 1e-6)
    sideways = np.cross(ahead, np.cross(ahead, [0.0, 0.0, 1.0]))
    sideways /= np.linalg.norm(sideways, axis=1, keepdims=True)
    offsets = step / 2 * (np.arange(across) - (across - 1) / 2)
    return (curve(t)[:, None] + offsets[:, None] * sideways[:, None]).reshape(-1, 3)


def fives(smoke):
    """Images of fives: 500 of MNIST, or all of scikit-learn's digits."""
    if smoke:
        X, y = load_digits(return_X_y=True)
        return X[y == 5] / 16
    with np.load(common.data_file("mnist"), allow_pickle=False) as archive:
        rows = np.flatnonzero(archive["y"] == 5)
        rows = np.random.default_rng(SEED).choice(rows, 500, replace=False)
        return archive["X"][rows] / 255.0


def teapots():
    """The reduced set: 100 frames."""
    with np.load(common.data_file("teapots_100"), allow_pickle=False) as archive:
        return archive["X"] / archive["scale"]


def frey_faces(every=4):
    """Every so many of the frames."""
    with np.load(common.data_file("frey_faces"), allow_pickle=False) as archive:
        return archive["X"][::every] / 255.0
