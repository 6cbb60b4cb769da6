"""No dual point, however wrong, proves more than there is.

Weak duality: every bound lies on the far side of every objective. So a proof of random numbers
gives a bound that the objective of a solved problem does not pass.
"""

import copy

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_s_curve

from nearfar import LMNN, MCML, MMC, MVU, DMLEig, verify

X, Y = load_iris(return_X_y=True)
CURVE = make_s_curve(120, noise=0.05, random_state=0)[0]


def random_triplets(proof, rng):
    n, targets = len(Y), proof["targets"]
    i, slot, far = rng.integers(0, n, 400), rng.integers(0, 3, 400), rng.integers(0, n, 400)
    apart = Y[i] != Y[far]
    triplets = np.unique(np.stack([i, targets[i, slot], far], axis=1)[apart], axis=0)
    return {**proof, "triplets": triplets, "weights": rng.random(len(triplets))}


def random_maps(proof, rng):
    return {name: rng.normal(size=L.shape) * rng.choice([0.1, 1, 10]) for name, L in proof.items()}


def random_pairs(proof, rng):  # noqa: ARG001 - others take some of it
    pairs = rng.integers(0, len(Y), (300, 2))
    pairs = pairs[Y[pairs[:, 0]] != Y[pairs[:, 1]]]
    return {"pairs": pairs, "weights": rng.random(len(pairs))}


def random_edges(proof, rng):
    weights = proof["weights"].copy()
    weights[:, 0] *= np.exp(rng.normal(size=len(weights)))
    return {**proof, "weights": weights}


CASES = {
    "lmnn": (LMNN(shrinkage=0, tol=1e-6), (X, Y), random_triplets),
    "mcml": (MCML(tol=1e-5, shrinkage=0), (X, Y), random_maps),
    "mcml shrunk": (MCML(tol=1e-5), (X, Y), random_maps),
    "mmc": (MMC(tol=1e-6), (X, Y), random_maps),
    "mmc diagonal": (MMC(tol=1e-6, diagonal=True), (X, Y), random_maps),
    "dml-eig": (DMLEig(tol=1e-6), (X, Y), random_pairs),
    "mvu": (MVU(), (CURVE, None), random_edges),
    "mvu shrink": (MVU(constraints="shrink"), (CURVE, None), random_edges),
    "mvu least": (MVU(variance="min"), (CURVE, None), random_edges),
}


@pytest.mark.parametrize("name", CASES)
def test_a_random_dual_point_proves_no_more_than_there_is(name, rng):
    learner, data, draw = CASES[name]
    model = learner.fit(*data)
    best = verify(model, *data)
    assert best.proved, best.sentence
    minimises = name in ("lmnn", "mcml", "mcml shrunk")
    for _ in range(10):
        other = copy.deepcopy(model)
        other.proof_ = draw(model.proof_, rng)
        found = verify(other, *data)
        assert not found.proved
        if minimises:
            assert found.bound <= best.objective
        else:
            assert found.bound >= best.objective * (1 - 1e-9 * np.sign(best.objective))


@pytest.mark.parametrize("scale", [0.5, 0.99, 1.01, 2.0])
def test_a_scaled_dual_point_of_lmnn_is_made_feasible(scale):
    """For α of bound B, sα proves sB if s <= 1; above, it is scaled back, to B at most."""
    model = LMNN(shrinkage=0, tol=1e-6).fit(X, Y)
    bound = verify(model, X, Y).bound
    kept = model.proof_["weights"] * scale <= 1
    model.proof_ = {
        **model.proof_,
        "triplets": model.proof_["triplets"][kept],
        "weights": scale * model.proof_["weights"][kept],
    }
    found = verify(model, X, Y).bound
    if scale <= 1:
        assert found == pytest.approx(scale * bound, rel=1e-9)
    else:
        assert found <= bound * (1 + 1e-9)
