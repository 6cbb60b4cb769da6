"""Rows in host memory that stream through a device: the answer in memory, and what is where.

On the CPU a device is imagined: `Card` tensors are on it, and `Away` ones cannot be computed with.
"""

from contextlib import suppress
from copy import copy
from weakref import WeakValueDictionary

import numpy as np
import pytest
from sklearn.datasets import load_digits

from nearfar import LMNN, NCA, Streamed, verify
from nearfar.blocks import streamed, streaming
from nearfar.errors import (
    ConvergenceWarning,
    InvalidInputError,
    MemoryLimitError,
    TimeLimitError,
)
from nearfar.kernels.tiles import PairCount
from nearfar.limits import memory_limit
from nearfar.problems import lmnn_shards

torch = pytest.importorskip("torch")

from nearfar.kernels import gram_torch  # noqa: E402
from nearfar.kernels.transfer import Transfer  # noqa: E402

TOL = 1e-2
LIMIT = 0.06  # GB

without_subclasses = torch._C.DisableTorchFunctionSubclass


class Card(torch.Tensor):
    """A tensor on the imagined device; NumPy cannot read it."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if any(issubclass(kind, Away) for kind in types):
            raise RuntimeError(f"{function} of tensors on two devices")
        found = super().__torch_function__(function, types, args, kwargs or {})
        for part in found if isinstance(found, tuple | list) else [found]:
            if isinstance(part, Card):
                held[id(part)] = part
        return found

    def cpu(self):
        with without_subclasses():
            return self.detach().as_subclass(torch.Tensor)

    def __array__(self, *args, **kwargs):
        raise TypeError("a tensor on a card is no array")


class Away(torch.Tensor):
    """A tensor in host memory while there is a card: only `Transfer` may use it."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in ("__get__", "__len__"):  # shape, device, nbytes
            with without_subclasses():
                return function(*args, **(kwargs or {}))
        raise RuntimeError(f"{function} of a tensor in host memory")


held = WeakValueDictionary()


@pytest.fixture
def card(monkeypatch):
    """Let "cpu" be a device with memory of its own; counts moves, and the most that it holds."""
    counts = {"loaded": 0, "unloaded": 0, "most": 0}
    held.clear()

    def size(_):
        found = (ref() for ref in held.valuerefs())  # a list at once: other threads add to it
        total = float(sum(x.untyped_storage().nbytes() for x in found if x is not None))
        counts["most"] = max(counts["most"], total)
        return total

    def load(_, x):
        if not isinstance(x, Away):
            return x
        counts["loaded"] += 1
        with without_subclasses():
            out = x.as_subclass(torch.Tensor).clone().as_subclass(Card)
        held[id(out)] = out
        return out

    def away(x):
        with without_subclasses():
            return x.as_subclass(torch.Tensor).clone().as_subclass(Away)

    def unload(_, x):
        counts["unloaded"] += 1
        return away(x)

    monkeypatch.setattr(Transfer, "is_away", lambda _, x: isinstance(x, Away))
    monkeypatch.setattr(Transfer, "load", load)
    monkeypatch.setattr(Transfer, "unload", unload)
    monkeypatch.setattr(Transfer, "host_rows", lambda _, X: away(torch.as_tensor(X)))
    monkeypatch.setattr(gram_torch, "held_memory", size)
    return counts


@pytest.fixture(autouse=True)
def _three_blocks(monkeypatch, request):
    """Three blocks of digits in float32, whose results go to host memory."""
    if request.node.get_closest_marker("gpu"):
        return
    monkeypatch.setattr(streamed, "LARGEST_BLOCK", 600 * 64 * 4)
    monkeypatch.setattr(streaming, "KEPT", 0.0)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X.astype(np.float32), y


@pytest.fixture(scope="module")
def in_memory(digits):
    return LMNN(tol=TOL).fit(*digits)


ALSO = [pytest.param(o, marks=pytest.mark.slow) for o in ({"shrinkage": 0}, {"n_components": 3})]


@pytest.mark.parametrize("options", [{}, *ALSO], ids=str)
def test_the_answer_is_that_in_memory(card, digits, in_memory, options):
    X, y = digits
    model = LMNN(tol=TOL, memory_limit=LIMIT, **options).fit(Streamed(X, "cpu"), y)
    peer = LMNN(tol=TOL, **options).fit(X, y) if options else in_memory
    assert model.status_ == peer.status_ == "converged"
    assert abs(model.objective_ - peer.objective_) <= TOL * peer.objective_
    assert isinstance(model.components_, np.ndarray)
    assert verify(model, X, y).objective == pytest.approx(model.objective_, rel=1e-6)
    if "n_components" not in options:
        assert verify(model, X, y).gap <= TOL * (1 + 1e-6)
    assert card["loaded"] > card["unloaded"] > 0
    assert card["most"] <= LIMIT * 1e9


@pytest.mark.slow
def test_results_stay_where_memory_holds_them(card, digits, monkeypatch):
    monkeypatch.setattr(streaming, "KEPT", 0.15)
    LMNN(tol=TOL, shrinkage=0, memory_limit=1).fit(Streamed(digits[0], "cpu"), digits[1])
    assert card["unloaded"] == 0


def test_a_task_that_fails_leaves_nothing_on_the_card(card):
    """Nor those after it, though all of them are still referred to."""
    engine = streaming.Streaming("cpu")
    rows = [engine.transfer.host_rows(np.ones((9, 2))) for _ in range(5)]

    def fails(x):
        found = 2 * x
        raise MemoryLimitError(f"{len(found)} rows are too many. Take fewer.")

    tasks = engine.map(fails, rows, name="fails")
    later = engine.map(lambda x: x + 1, tasks, name="later")
    with suppress(MemoryLimitError):
        engine.results(tasks)
    assert all(task.done() for task in later)
    assert card["loaded"] > 0
    assert not held
    again = engine.map(lambda x: x + 1, rows, name="again")  # all places are free
    assert len(engine.results(again)) == 5


def test_what_does_not_fit_is_not_loaded(card):
    engine = streaming.Streaming("cpu")
    rows = engine.transfer.host_rows(np.ones((9, 2)))
    with memory_limit(1e-7), pytest.raises(MemoryLimitError, match="copy what a block of rows"):
        engine.finish(engine.map(len, [rows], name="rows"))
    assert card["loaded"] == 0


@pytest.mark.slow
@pytest.mark.usefixtures("card")
def test_pairs_of_all_searches_count(digits, monkeypatch):
    """Too many for one shard, though not for any search: as in memory, fewer are taken."""
    X, y = digits
    counts = []

    class Count(PairCount):
        def add(self, count):
            if len(self._points) != len(X) // 3:
                return  # a sample, which gives the scale
            counts.append(count)
            if len(counts) in (2, 8):  # of the first search, and of a later one
                raise MemoryLimitError("There are too many. Take fewer.")

    monkeypatch.setattr(lmnn_shards, "PairCount", Count)
    model = LMNN(tol=TOL, shrinkage=0).fit(Streamed(X, "cpu"), y)
    assert len(counts) >= 12  # each is made again
    assert model.status_ == "converged"
    assert verify(model, X, y).gap <= TOL * (1 + 1e-6)


@pytest.mark.parametrize("fitted", ["array", "tensor"])
def test_rows_are_mapped_in_blocks(card, digits, in_memory, fitted, tmp_path):
    """A file that is mapped, and a model whose map is an array or a tensor."""
    X, model = digits[0], copy(in_memory)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    if fitted == "tensor":
        model.components_ = torch.as_tensor(model.components_)
    images = model.transform(Streamed(mapped, "cpu"))
    assert isinstance(images, np.ndarray)
    assert images.dtype == np.float32
    np.testing.assert_allclose(images, X @ np.asarray(model.components_).T, atol=1e-4)
    assert card["loaded"] == 3


@pytest.mark.parametrize("shrinkage", [0, "auto"])
def test_a_start_that_there_is_no_time_to_search_for_is_proved(digits, shrinkage, monkeypatch):
    def late(*_, **__):
        raise TimeLimitError("too late. Raise max_seconds.")
        yield

    monkeypatch.setattr("nearfar.estimators._large_margin.descend_in_both_precisions", late)
    monkeypatch.setattr(streamed, "LARGEST_BLOCK", 100 * 64 * 4)
    X, y = (part[:300] for part in digits)
    with pytest.warns(ConvergenceWarning, match="reached max_seconds"):
        model = LMNN(shrinkage=shrinkage, max_seconds=1000).fit(Streamed(X, "cpu"), y)
    assert model.status_ == "max_seconds"
    found = verify(model, X, y)
    assert found.objective == pytest.approx(model.objective_, rel=1e-5)
    assert found.gap == pytest.approx(model.duality_gap_, rel=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("card")
def test_weights_of_rows_count(digits):
    X, y = digits
    weights = np.random.default_rng(0).integers(4, size=len(X)).astype(float)
    model = LMNN(tol=TOL).fit(Streamed(torch.as_tensor(X), "cpu"), y, sample_weight=weights)
    assert verify(model, X, y).gap <= TOL * (1 + 1e-6)


def test_errors_say_what_to_do(digits):
    X, y = digits
    rows = Streamed(X, "cpu")
    with pytest.raises(InvalidInputError, match="rows that stream through a device are for LMNN"):
        NCA().fit(rows, y)
    with pytest.raises(InvalidInputError, match="validation_fraction needs rows in memory"):
        LMNN(validation_fraction=0.2).fit(rows, y)
    with pytest.raises(InvalidInputError, match="rows must be an array or a tensor"):
        Streamed(rows)
    with pytest.raises(InvalidInputError, match="rows must be numbers of shape"):
        Streamed(X[0], "cpu")
    with pytest.raises(InvalidInputError, match=r"must be numbers of shape .* got torch.bfloat16"):
        Streamed(torch.as_tensor(X).bfloat16(), "cpu")
    for device in ("nowhere", None):
        with pytest.raises(InvalidInputError, match="cannot be used here"):
            LMNN().fit(Streamed(X, device), y)
    with pytest.raises(InvalidInputError, match="must not contain NaN"):
        LMNN().fit(Streamed(np.where(X > 15, np.nan, X), "cpu"), y)
    with pytest.raises(MemoryLimitError, match="in blocks needs"):
        LMNN(memory_limit=1e-4).fit(rows, y)


@pytest.mark.gpu
@pytest.mark.parametrize("share", [0.5, 0.75])
def test_a_card_needs_no_memory_for_all(share):
    """A share of the memory that the fit takes in memory is enough; transform follows the rows."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=150_000)
    X = (rng.normal(size=(len(y), 40)) + 3 * np.eye(40)[y]).astype(np.float32)
    whole = LMNN(shrinkage=0, tol=TOL).fit(torch.as_tensor(X, device="cuda"), y)
    limit = share * whole.history_[-1]["peak_bytes"]
    torch.cuda.empty_cache()
    model = LMNN(shrinkage=0, tol=TOL, memory_limit=limit / 1e9).fit(Streamed(X), y)
    assert model.status_ == "converged"
    assert model.objective_ == pytest.approx(whole.objective_, rel=2 * TOL)
    assert model.history_[-1]["peak_bytes"] <= limit
    images = whole.transform(Streamed(X))
    assert isinstance(images, np.ndarray)
    np.testing.assert_allclose(images, X @ whole.components_.cpu().numpy().T, rtol=1e-4, atol=1e-3)
