"""The clock of a fit, and that every fit keeps its limit. No test looks at a real clock."""

import inspect
import os
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from weakref import WeakSet

import numpy as np
import pytest

import nearfar
from nearfar import limits
from nearfar.errors import (
    ConvergenceWarning,
    InvalidInputError,
    MemoryLimitError,
    TimeLimitError,
)
from nearfar.kernels import check_memory, gram_numpy, on_numpy, parallel, threads, tiles
from nearfar.limits import Stage, check_cost, check_time, fit_clock, time_limit
from nearfar.problems.lmnn import LMNNProblem
from nearfar.problems.pola import POLAProblem
from nearfar.registry import ENTRIES, entries
from nearfar.solvers import multipliers
from nearfar.solvers.factor_steps import mean_metric


class Clock:
    """A clock that moves by a step at each look at it, in any thread."""

    def __init__(self, step=0.0):
        self.now, self.step = 1000.0, step
        self.lock = threading.Lock()

    def __call__(self):
        with self.lock:
            self.now += self.step
            return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(limits, "now", clock)
    return clock


# -- the clock ---


@pytest.mark.parametrize(
    ("stage", "end"), [(Stage.START, 3.5), (Stage.RUN, 2.0), (Stage.FINISH, 4.75)]
)
def test_each_stage_has_its_end(clock, stage, end):
    with time_limit(2.0) as fit:
        fit.stage = stage
        clock.now += end - 1e-6
        check_time()
        clock.now += 2e-6
        with pytest.raises(TimeLimitError, match=r"max_seconds=2 is too short .* Raise max_sec"):
            check_time()


def test_without_a_limit_or_a_fit_there_is_no_end(clock):
    with time_limit(None):
        clock.now += 1e9
        check_time()
        check_cost(1e30, "everything")
    check_time()
    check_cost(1e30, "everything")


def test_a_stopped_clock_stands_still(clock):
    with time_limit(2.0) as fit:
        clock.now += 1
        with fit.paused():
            clock.now += 100
            assert fit.seconds == 1
            check_time()
        assert fit.seconds == 1


@pytest.mark.usefixtures("clock")
def test_earlier_seconds_count_for_the_run_but_leave_time_for_an_answer():
    with time_limit(2.0) as fit:
        fit.continue_from(50.0)
        assert fit.is_up
        check_time()
        fit.stage = Stage.RUN
        with pytest.raises(TimeLimitError):
            check_time()


@pytest.mark.usefixtures("clock")
def test_what_cannot_be_left_is_not_begun(monkeypatch):
    monkeypatch.setattr(limits, "operations_per_second", lambda: 1e9)
    with time_limit(2.0):  # 3.5 s before there is an answer
        check_cost(3e9, "this")
        with pytest.raises(TimeLimitError, match=r"^that would take about 4.0 s: max_seconds=2 is"):
            check_cost(4e9, "that")


def test_what_is_not_known_in_time_is_none(clock):
    with time_limit(2.0) as fit:
        fit.stage = Stage.RUN
        assert fit.in_time(lambda: 5) == 5

        def slow():
            clock.now += 5
            check_time()

        assert fit.in_time(slow) is None


@pytest.mark.usefixtures("clock")
def test_a_fit_inside_a_fit_has_its_own_clock():
    with time_limit(1.0) as outer:
        with time_limit(2.0) as inner:
            assert fit_clock() is inner
        assert fit_clock() is outer


# -- kernels ---


def test_no_thread_begins_another_part_once_the_time_is_spent(clock, monkeypatch):
    """Two threads, 1000 parts that take a second each, and time for ten."""
    monkeypatch.setattr(parallel, "n_threads", lambda: 2)
    done, before = [], threading.active_count()

    def work(part):
        with clock.lock:
            clock.now += 1
        done.append(part)

    with time_limit(10.0) as fit:
        fit.stage = Stage.RUN
        with pytest.raises(TimeLimitError):
            parallel.in_threads(work, list(range(1000)), parallel.THREADED_BYTES)
    assert 10 <= len(done) <= 11
    assert threading.active_count() <= before


def test_threads_see_the_clock_and_the_number_of_threads_of_the_fit(monkeypatch):
    monkeypatch.setattr(parallel, "n_threads", lambda: 2)
    with time_limit(60.0) as fit, threads.single_threaded_blas():
        expected = threads.n_threads()
        seen = parallel.in_threads(
            lambda _: (fit_clock(), threads.n_threads()), [0, 1, 2], parallel.THREADED_BYTES
        )
    assert seen == [(fit, expected)] * 3


def test_target_neighbors_of_a_large_class_are_searched_block_by_block(monkeypatch, rng):
    """The answer is that of one search, also among many equal points."""
    X = rng.normal(size=(900, 3))
    X[100:130] = X[100]
    starts = np.array([0, 700, 900])
    whole = on_numpy.nearest_in_class(X, starts, 3)
    monkeypatch.setattr(parallel, "TABLE_ENTRIES", 700 * 50)
    for part, expected in zip(on_numpy.nearest_in_class(X, starts, 3), whole, strict=True):
        np.testing.assert_array_equal(part, expected)


# -- every estimator ---


def labelled(rng):
    y = np.arange(90) % 3
    return rng.normal(size=(3, 5))[y] + rng.normal(size=(90, 5)), y


def strip(rng):
    t = np.sort(rng.uniform(0, 3, 60))
    return (np.column_stack([np.cos(t), np.sin(t), rng.uniform(0, 0.3, 60)]),)


def names_with(parameter):
    """The registered classes that have a parameter."""
    return [
        entry.name
        for entry in ENTRIES
        if parameter in inspect.signature(getattr(nearfar, entry.name)).parameters
    ]


AROUND = {entry.name for entry in entries(learns_from="metric")}  # the limit is that of the metric
UNLABELLED = [
    name
    for name in names_with("max_seconds")
    if name in {entry.name for kind in ("unfolding", "scaling") for entry in entries(kind=kind)}
]
LABELLED = [name for name in names_with("max_seconds") if name not in {*UNLABELLED, *AROUND}]


def test_what_iterates_has_a_limit():
    assert set(names_with("max_iter")) - AROUND == {*LABELLED, *UNLABELLED}


def data_for(name, rng):
    if name in LABELLED:
        return labelled(rng)
    (X,) = strip(rng)
    if name == "SensorLocalization":
        return (np.linalg.norm(X[:, None] - X, axis=2),)
    return (X,)


@pytest.mark.parametrize("limit", [0.0, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("name", [*LABELLED, *UNLABELLED])
def test_a_fit_ends_within_twice_its_limit_and_a_second(name, limit, clock, rng):
    """Each look at the clock takes 5 ms, so that the limit strikes in one stage or another.

    If there is an objective, it is a number; if there is none, nothing is proved of it.
    """
    data = data_for(name, rng)
    clock.step = 0.005
    began = clock.now
    model = getattr(nearfar, name)(max_seconds=limit)
    if "n_neighbors" in model.get_params() and name in UNLABELLED:
        model.set_params(n_neighbors=8)
    with warnings.catch_warnings(), suppress(TimeLimitError):
        warnings.simplefilter("ignore")
        model.fit(*data)
        assert model.objective_ is None or np.isfinite(model.objective_)
        if model.objective_ is None:
            assert model.status_ == "max_seconds"
            assert model.duality_gap_ is None
    assert clock.now - began <= 2 * limit + 1 + 0.05


def test_the_limit_in_the_first_search_keeps_the_start(clock, monkeypatch, rng):
    """Where there is no iterate and no objective yet, LMNN says so and returns where it began."""
    X, y = labelled(rng)
    search = on_numpy.impostor_pairs

    def slow(*args):
        clock.now += 100
        check_time()
        return search(*args)

    monkeypatch.setattr(on_numpy, "impostor_pairs", slow)
    with pytest.warns(
        ConvergenceWarning,
        match=r"LMNN stopped before its first iteration and returned its initial map:"
        r" .*max_seconds.*, too soon to know objective_ and duality_gap_, which are None\. Raise",
    ):
        model = nearfar.LMNN(max_seconds=5).fit(X, y)
    assert (model.status_, model.n_iter_, model.history_) == ("max_seconds", 0, [])
    assert model.objective_ is None
    assert model.duality_gap_ is None
    assert np.isfinite(model.transform(X)).all()


def test_the_limit_in_the_certificate_leaves_the_objective_open(clock, monkeypatch, rng):
    X, y = labelled(rng)
    certify = LMNNProblem.certify

    def slow(*args, **kwargs):
        clock.now += 100
        return certify(*args, **kwargs)

    monkeypatch.setattr(LMNNProblem, "certify", slow)
    with pytest.warns(ConvergenceWarning, match="too soon to know objective_"):
        model = nearfar.LMNN(max_seconds=5, tol=1e-4).fit(X, y)
    assert model.status_ == "max_seconds"
    assert model.n_iter_ > 0
    assert model.objective_ is None


def test_pola_says_that_its_objective_is_not_known(monkeypatch, rng):
    def never(*_):
        raise TimeLimitError("too late. Raise max_seconds.")

    monkeypatch.setattr(POLAProblem, "losses", never)
    with pytest.warns(ConvergenceWarning, match="too soon to know objective_, which is None. Rai"):
        model = nearfar.POLA(max_seconds=0).fit(*labelled(rng))
    assert model.objective_ is None


def test_pola_stops_within_an_epoch(clock, rng):
    """Its answer is that of the pairs that were looked at, and the objective that of all pairs."""
    X, y = labelled(rng)
    clock.step = 0.01
    with pytest.warns(ConvergenceWarning, match="max_seconds"):
        model = nearfar.POLA(max_seconds=0.3).fit(X, y)
    assert model.n_iter_ == 1
    assert 0 < model.n_pairs_seen_ < 90 * 89 // 2
    clock.step = 0.0
    distances = model.pair_distance(
        np.stack(np.broadcast_arrays(X[:, None], X), 2).reshape(-1, 2, 5)
    )
    near = (y[:, None] == y).ravel()
    losses = 1 - np.where(near, 1, -1) * (model.squared_threshold_ - distances**2)
    losses = losses.reshape(90, 90)[np.triu_indices(90, 1)]
    assert model.objective_ == pytest.approx(losses.clip(0).sum(), rel=1e-9)


# -- memory ---


def pairs_of_points(rng, n=400):
    """Two points a class: nearly all others are impostors."""
    return rng.normal(size=(n, 10)), np.arange(n) // 2


def test_more_triplets_than_memory_holds_are_refused_before_they_are_allocated(rng, monkeypatch):
    """About 400² pairs need 46 MB; a tile of them is found, and no array of all is made."""

    def never(*_, **__):
        raise AssertionError("it was allocated")

    monkeypatch.setattr(LMNNProblem, "_triplets", never)
    monkeypatch.setattr(LMNNProblem, "sampled", lambda self, _: self)
    with pytest.raises(
        InvalidInputError,
        match=r"learning from 400 points with \d+ triplets or more at a time needs about 0\.0\d+"
        r" GB, above the limit of 0\.01 GB\. Fit to fewer rows, lower n_neighbors, or raise",
    ):
        nearfar.LMNN(n_neighbors=1, memory_limit=0.01).fit(*pairs_of_points(rng))


def test_triplets_of_a_pair_count(rng, monkeypatch):
    """With three edges a point there are three triplets a pair."""
    monkeypatch.setattr(tiles, "PAIR_BYTES", 0)
    y = np.arange(400) // 4
    with pytest.raises(InvalidInputError, match=r"400 points with \d+ triplets at a time needs"):
        nearfar.LMNN(memory_limit=0.02).fit(rng.normal(size=(400, 10)), y)


def overlapping(rng):
    """Three classes of 300 points that overlap, in units in which a metric has to be learned."""
    y = np.arange(900) % 3
    return rng.normal(size=(900, 8)) + 0.7 * np.eye(8)[y], y


class Held:
    """Something that a search holds while it fails."""


def refuse_searches(monkeypatch, numbers):
    """Let these searches of a fit to 900 points find too many triplets; return their counts."""
    counts, check, refused = [], LMNNProblem._check_memory, WeakSet()

    def counted(self, n_pairs, n_triplets, room):
        check(self, n_pairs, n_triplets, room)
        assert not refused  # what a search had found is gone before the next one
        if len(self.edges[0]) == 3 * 900:  # fewer are the sample that gives the scale
            counts.append(n_triplets)
            if len(counts) - 1 in numbers:
                held = Held()
                refused.add(held)
                raise MemoryLimitError("There are too many. Take fewer.")

    monkeypatch.setattr(LMNNProblem, "_check_memory", counted)
    return counts


@pytest.mark.parametrize(
    "refused", [{0}, {1}, {1, 2}, {1, 2, 3}], ids=["first", "wide", "narrow", "halfway"]
)
def test_triplets_that_memory_does_not_hold_are_searched_again(rng, monkeypatch, refused):
    """Those that are active at the same metric, then those of metrics nearer to the last search."""
    X, y = overlapping(rng)
    expected = nearfar.LMNN(shrinkage=0).fit(X, y).objective_
    counts = refuse_searches(monkeypatch, refused)
    model = nearfar.LMNN(shrinkage=0).fit(X, y)
    assert len(counts) > max(refused) + 1
    assert counts[max(refused) + 1] < counts[min(refused)]
    assert model.status_ == "converged"
    assert model.objective_ == pytest.approx(expected, rel=2e-3)


def test_a_search_that_is_refused_everywhere_ends_the_fit(rng, monkeypatch):
    counts = refuse_searches(monkeypatch, set(range(1, 100)))
    with pytest.raises(MemoryLimitError, match="There are too many"):
        nearfar.LMNN(shrinkage=0).fit(*overlapping(rng))
    assert len(counts) == 2 + 1 + multipliers.TUNING.most_halvings


def test_a_mean_of_metrics_is_one():
    """Of factors with other numbers of rows, too: LᵀL is the mean, with at most d rows."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(3, 4)), rng.normal(size=(2, 4))
    mean = mean_metric(first, second, fixed_rank=False)
    assert mean.shape == (4, 4)
    np.testing.assert_allclose(mean.T @ mean, (first.T @ first + second.T @ second) / 2)
    several = mean_metric(first[None, :1], second[None, :1], fixed_rank=False)
    assert several.shape == (1, 2, 4)
    fixed = mean_metric(first[:2], second, fixed_rank=True)
    np.testing.assert_array_equal(fixed, (first[:2] + second) / 2)


def test_enough_memory_changes_nothing(rng):
    X, y = labelled(rng)
    expected = nearfar.LMNN().fit(X, y).components_
    np.testing.assert_array_equal(nearfar.LMNN(memory_limit=1.0).fit(X, y).components_, expected)


@pytest.mark.parametrize("name", ["KernelLMNN", "KernelMCML", "KernelMMC"])
def test_a_kernel_matrix_is_refused_at_the_door(name, rng, monkeypatch):
    """9 arrays of 90² numbers of 8 bytes are 0.58 MB."""

    def never(*_, **__):
        raise AssertionError("it was allocated")

    monkeypatch.setattr(on_numpy, "similarities", never)
    few = {"n_pairs": 500} if name == "KernelMMC" else {}
    model = getattr(nearfar, name)(memory_limit=5e-4, **few)
    with pytest.raises(
        InvalidInputError,
        match=r"the kernel matrix of \d+ points with its eigenvectors needs about 0\.000\d+ GB,"
        r" above the limit of 0\.0005 GB\. Fit to fewer rows, or raise memory_limit",
    ):
        model.fit(*labelled(rng))


def test_pairs_are_refused_at_the_door(rng):
    """90 points have 4005 pairs."""
    with pytest.raises(
        InvalidInputError,
        match=r"learning from 4005 pairs needs about 0\.0006 GB, above the limit of 0\.0005 GB\."
        r" Set n_pairs to draw from them, or raise memory_limit\.",
    ):
        nearfar.MMC(memory_limit=5e-4).fit(*labelled(rng))


@pytest.mark.parametrize("name", ["LMNN", "MMC", "KernelLMNN", "KernelMCML", "KernelMMC", "MVU"])
def test_an_unusable_memory_limit(name, rng):
    with pytest.raises(InvalidInputError, match="memory_limit must be a number"):
        getattr(nearfar, name)(memory_limit=0).fit(*labelled(rng))


@pytest.fixture
def without_sysconf(monkeypatch):
    """As on Windows: no os.sysconf, no module resource."""
    for name in ("sysconf", "sysconf_names"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setitem(sys.modules, "resource", None)


class Kernel32:
    """What `limits` asks of Windows; the size of the structure is checked as Windows does."""

    def __init__(self, total):
        self.total = total

    def GlobalMemoryStatusEx(self, reference):
        status = reference._obj
        assert status.length == 64
        status.total_physical = self.total or 0
        return int(self.total is not None)


@pytest.mark.usefixtures("without_sysconf")
def test_the_memory_of_a_windows_machine(monkeypatch, rng):
    windll = SimpleNamespace(kernel32=Kernel32(3 * 10**11))
    monkeypatch.setattr(limits.ctypes, "windll", windll, raising=False)
    assert limits.machine_memory() == gram_numpy.total_memory(None) == 3e11
    assert nearfar.MVU(1, 6, angles=False).fit(rng.normal(size=(12, 8))).status_ == "converged"
    monkeypatch.setattr(windll, "kernel32", Kernel32(None))
    assert limits.machine_memory() is None


@pytest.mark.usefixtures("without_sysconf")
def test_the_memory_of_a_system_that_does_not_tell(monkeypatch):
    monkeypatch.delattr(limits.ctypes, "windll", raising=False)
    assert limits.machine_memory() is None
    assert gram_numpy.total_memory(None) == limits.ASSUMED_MEMORY == 8 * 2**30
    message = "a matrix needs about 17 GB, above the limit of 8.6 GB. Wait, or raise memory_limit"
    with pytest.raises(InvalidInputError, match=message):
        check_memory(1.7e10, "a matrix", "Wait", np.empty(0))


def test_more_memory_than_the_machine_has_needs_another(monkeypatch):
    monkeypatch.setattr(limits, "machine_memory", lambda: 1e9)
    message = r"a matrix needs about 17 GB, above the available memory of .* GB\. Wait, or use"
    with pytest.raises(InvalidInputError, match=message):
        check_memory(1.7e10, "a matrix", "Wait", np.empty(0))


def test_the_memory_of_this_machine():
    if not hasattr(os, "sysconf"):
        pytest.skip("this system has no os.sysconf")
    assert limits.machine_memory() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_the_limit_of_the_process_counts(monkeypatch):
    resource = pytest.importorskip("resource")
    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not tell the use of memory there")
    whole = gram_numpy.total_memory(None)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10**9, 10**9))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    assert gram_numpy.total_memory(None) == pytest.approx(10**9 - used, abs=10**8)
    assert whole > 1e8
