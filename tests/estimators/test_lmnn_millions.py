"""LMNN of many rows: triplets are counted before they are searched, and a sample comes first."""

from weakref import WeakSet

import numpy as np
import pytest
from sklearn.datasets import load_digits

import nearfar
from nearfar import LMNN
from nearfar.errors import MemoryLimitError
from nearfar.kernels import check_memory, gram_numpy, kernels_for, on_numpy
from nearfar.problems import lmnn_objective, lmnn_points
from nearfar.problems.lmnn import LMNNProblem


@pytest.fixture
def digits():
    X, y = load_digits(return_X_y=True)
    return X.astype(np.float32), y


@pytest.fixture
def counted(monkeypatch):
    """Let some 200 of the rows tell how many triplets there are; the searches as they were made."""
    found, survey = [], LMNNProblem._survey

    def recorded(self, L, Z, kept, margin, width, previous, **options):
        at = survey(self, L, Z, kept, margin, width, previous, **options)
        if len(self.edges[0]) == 3 * 1797:
            found.append((margin, len(at.triplets.heads), len(at.triplets)))
        return at

    monkeypatch.setattr(LMNNProblem, "_survey", recorded)
    monkeypatch.setattr(lmnn_objective, "ESTIMATE_LEAST", 3000)
    monkeypatch.setattr(lmnn_objective, "ESTIMATE_ROWS", 200)
    return found


def most_held(counted):
    """Bytes of the largest of the searches that were made."""
    sizes = lmnn_objective.PAIR_BYTES, lmnn_objective.TRIPLET_BYTES
    return max(np.dot(sizes, found) for _, *found in counted)


@pytest.fixture
def sampled(digits, monkeypatch):
    """Digits as tensors, of which an eleventh is the sample that comes first."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(lmnn_points, "SAMPLED_ROWS", 150)
    return torch.as_tensor(digits[0]), digits[1]


@pytest.mark.slow
def test_many_rows_begin_with_a_sample(digits, sampled):
    """The first iterations have seen an eleventh of the rows; the certificate is of all."""
    expected = LMNN(shrinkage=0).fit(*digits)
    model = LMNN(shrinkage=0).fit(*sampled)
    assert model.status_ == "converged"
    assert model.objective_ == pytest.approx(expected.objective_, rel=2e-3)
    assert nearfar.verify(model, *sampled).gap <= 1e-3
    begun = [record["searched"] for record in model.history_].index(True)
    assert begun > 5
    assert all(record["residual"] is None for record in model.history_[:begun])


@pytest.mark.parametrize("options", [{}, {"validation_fraction": 0.2}], ids=["all", "held out"])
def test_a_fit_that_ends_in_the_sample_is_certified_on_all_rows(sampled, options, tmp_path):
    path = tmp_path / "fit.ckpt"
    with pytest.warns(UserWarning, match="max_iter"):
        model = LMNN(shrinkage=0, max_iter=3, checkpoint=path, random_state=0, **options).fit(
            *sampled
        )
    proof = nearfar.verify(model, *sampled)
    assert proof.objective == pytest.approx(model.objective_, rel=1e-6)
    assert proof.gap == pytest.approx(model.duality_gap_, rel=1e-6)


def test_a_limit_narrows_the_searches(digits, counted):
    """What was found takes no more memory than is allowed, and the answer stays."""
    expected = LMNN(shrinkage=0).fit(*digits)
    unlimited, limit = list(counted), 2.5e-3
    counted.clear()
    model = LMNN(shrinkage=0, memory_limit=limit).fit(*digits)
    assert model.status_ == "converged"
    assert model.objective_ == pytest.approx(expected.objective_, rel=2e-3)

    assert most_held(unlimited) > limit * 1e9
    assert most_held(counted) <= limit * 1e9
    assert min(margin for margin, *_ in counted) < min(margin for margin, *_ in unlimited)


@pytest.mark.parametrize("most", [2.5e6, 1.0], ids=["some", "none"])
def test_on_the_host_few_triplets_outside_the_margin_are_kept(digits, counted, monkeypatch, most):
    """Searches are narrowed without a `memory_limit`, and active triplets are no error."""
    expected = LMNN(shrinkage=0).fit(*digits)
    free = most_held(counted)
    counted.clear()
    monkeypatch.setattr(lmnn_objective, "HOST_BYTES", most, raising=False)
    model = LMNN(shrinkage=0).fit(*digits)
    assert model.status_ == "converged"
    assert model.objective_ == pytest.approx(expected.objective_, rel=2e-3)
    assert most_held(counted) < 2 / 3 * free


def test_where_searches_are_cheap_fewer_triplets_are_kept(digits, counted, monkeypatch):
    expected = LMNN(shrinkage=0).fit(*digits)
    most = max(triplets for *_, triplets in counted)
    counted.clear()
    monkeypatch.setattr(on_numpy, "searches_are_cheap", lambda _: True)
    monkeypatch.setattr(lmnn_objective, "WORKING_BYTES", 500)
    model = LMNN(shrinkage=0).fit(*digits)
    assert model.status_ == "converged"
    assert model.objective_ == pytest.approx(expected.objective_, rel=2e-3)
    assert max(triplets for *_, triplets in counted) < most / 2


def test_a_certificate_holds_fewer_triplets_where_memory_does(digits, monkeypatch):
    """Without room for triplets outside the margin, the active ones prove the gap."""
    survey, refused, held = LMNNProblem._survey, [], WeakSet()

    def within_memory(self, L, Z, kept, margin, *args, screened=False, **options):
        assert not held  # what the refused search had found is gone
        if screened and margin > 0:
            found = LMNN()  # anything that can be watched
            held.add(found)
            refused.append(margin)
            raise MemoryLimitError("too many")
        return survey(self, L, Z, kept, margin, *args, screened=screened, **options)

    monkeypatch.setattr(LMNNProblem, "_survey", within_memory)
    model = LMNN(shrinkage=0).fit(*digits)
    assert len(refused) >= 2  # of the last iterate, and of the map that is returned
    assert model.status_ == "converged"
    proof = nearfar.verify(model, *digits)
    assert proof.objective == pytest.approx(model.objective_, rel=1e-6)
    assert proof.gap == pytest.approx(model.duality_gap_, rel=1e-4)


def test_what_tensors_hold_counts(monkeypatch):
    """A limit of the memory on a device is one of all tensors there, the data among them."""
    monkeypatch.setattr(gram_numpy, "held_memory", lambda _: 5e9)
    with (
        nearfar.limits.memory_limit(8),
        pytest.raises(
            MemoryLimitError, match=r"above the limit of 8 GB, of which tensors .* hold 5 GB"
        ),
    ):
        check_memory(4e9, "a matrix", "Wait", np.empty(0))


@pytest.mark.gpu
def test_the_limit_is_one_of_the_peak():
    """Less memory than a fit takes without a limit is enough: about three quarters of that hold the
    points and the triplets that are active at first.

    The classes overlap little, so that most of the triplets at hand are not active: only those that
    are must be held.
    """
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=100_000)
    X = rng.normal(size=(len(y), 24)) + 3 * np.eye(24)[y]
    X = torch.as_tensor(X, dtype=torch.float32, device="cuda")
    assert kernels_for(X).searches_are_cheap(X)
    free = LMNN(shrinkage=0, tol=1e-2).fit(X, y)
    limit = 0.85 * free.history_[-1]["peak_bytes"]
    model = LMNN(shrinkage=0, tol=1e-2, memory_limit=limit / 1e9).fit(X, y)
    assert model.status_ == "converged"
    assert model.history_[-1]["peak_bytes"] <= limit
    assert model.objective_ == pytest.approx(free.objective_, rel=2e-2)
