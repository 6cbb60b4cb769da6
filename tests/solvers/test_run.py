"""The one loop: each way to end, the clock, the trace."""

import numpy as np
import pytest

from nearfar import limits as time_limits
from nearfar.errors import InvalidInputError, TimeLimitError
from nearfar.limits import fit_clock, time_limit
from nearfar.solvers import Iterate, Status, run


class Clock:
    """A clock that moves only when told."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time_limits, "now", clock)
    return clock


def steps(values, residuals=None, exact=None, *, clock=None, then=None):
    """A solver that gives these values, one a second, and then raises."""
    for number, value in enumerate(values):
        if clock is not None:
            clock.now += 1
        yield Iterate(
            np.array([value]),
            value,
            residual=None if residuals is None else residuals[number],
            exact=exact is not None and exact[number],
            info={"active_triplets": number},
        )
    if then is not None:
        raise then


FOREVER = range(1000, 0, -1)


def limits(**changed):
    return {"tol": 0.01, "max_iter": 50, **changed}


# -- how a run ends ---


@pytest.mark.parametrize("residual", [0.01, 0.0099, 0.0, -1e-9])
def test_converged_when_the_residual_is_at_most_the_tolerance(residual):
    solution = run(steps([3.0, 2.0, 1.0], [0.5, residual, 0.0]), **limits())
    assert solution.status is Status.CONVERGED
    assert solution.n_iter == 2
    assert solution.iterate.value == 2.0


def test_stalled_when_the_solver_ends_by_itself():
    solution = run(steps([3.0, 2.0]), **limits())
    assert solution.status is Status.STALLED
    assert solution.iterate.value == 2.0


def test_max_iter():
    solution = run(steps(FOREVER), **limits(max_iter=7))
    assert (solution.status, solution.n_iter) == (Status.MAX_ITER, 7)
    assert solution.iterate.value == FOREVER[6]


def test_max_seconds(clock):
    with time_limit(4.5):
        solution = run(steps(FOREVER, clock=clock), **limits())
    assert (solution.status, solution.n_iter) == (Status.MAX_SECONDS, 5)
    assert solution.seconds == 5


def test_no_time_at_all_gives_one_iterate(clock):
    """An answer is better than none."""
    with time_limit(0):
        solution = run(steps(FOREVER, clock=clock), **limits())
    assert (solution.status, solution.n_iter) == (Status.MAX_SECONDS, 1)


@pytest.mark.parametrize("status", [Status.STOPPED, Status.EARLY_STOPPED])
def test_an_observer_ends_the_run(status):
    def stop_at_three(_, trace):
        return status if len(trace) == 3 else None

    solution = run(steps(FOREVER), observers=[stop_at_three], **limits())
    assert (solution.status, solution.n_iter) == (status, 3)


def test_interrupted_keeps_the_best_iterate():
    solution = run(steps([3.0, 2.0], then=KeyboardInterrupt), **limits())
    assert solution.status is Status.INTERRUPTED
    assert solution.iterate.value == 2.0
    assert solution.n_iter == len(solution.history) == 2


def test_interrupted_while_an_observer_works():
    def interrupt(_, trace):
        if len(trace) == 2:
            raise KeyboardInterrupt

    solution = run(steps(FOREVER), observers=[interrupt], **limits())
    assert (solution.status, solution.n_iter) == (Status.INTERRUPTED, 2)
    assert solution.iterate.value == FOREVER[1]


def test_an_interruption_before_the_first_iterate_is_passed_on():
    with pytest.raises(KeyboardInterrupt):
        run(steps([], then=KeyboardInterrupt), **limits())


def test_the_end_of_the_time_between_two_iterates_keeps_the_best():
    solution = run(steps([3.0, 2.0], then=TimeLimitError), **limits())
    assert solution.status is Status.MAX_SECONDS
    assert solution.iterate.value == 2.0
    assert solution.n_iter == len(solution.history) == 2


def test_the_end_of_the_time_before_the_first_iterate_gives_the_start():
    start = Iterate(np.array([7.0]), np.inf)
    solution = run(steps([], then=TimeLimitError), start=start, **limits())
    assert (solution.status, solution.n_iter) == (Status.MAX_SECONDS, 0)
    assert solution.iterate is start


def test_without_a_start_it_is_passed_on():
    with pytest.raises(TimeLimitError):
        run(steps([], then=TimeLimitError), **limits())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_ends_the_run_with_the_last_sound_iterate(value):
    solution = run(steps([3.0, 2.0, value, 1.0]), **limits())
    assert solution.status is Status.STALLED
    assert solution.iterate.value == 2.0


@pytest.mark.parametrize("values", [[], [np.nan]])
def test_no_sound_iterate_is_an_error(values):
    with pytest.raises(InvalidInputError, match="no point with a finite objective"):
        run(steps(values), **limits())


def test_other_errors_are_passed_on():
    with pytest.raises(ZeroDivisionError):
        run(steps([3.0], then=ZeroDivisionError), **limits())


def test_converging_in_the_last_iteration_is_converging():
    solution = run(steps([3.0, 2.0], [None, 0.0]), **limits(max_iter=2))
    assert solution.status is Status.CONVERGED


# -- the best iterate ---


@pytest.mark.parametrize(
    ("values", "exact", "best"),
    [
        ([3.0, 2.0, 1.0], [False, False, False], 2),
        ([1.0, 2.0, 3.0], [False, False, False], 2),
        ([1.0, 2.0, 3.0], [True, False, False], 0),
        ([3.0, 2.0, 2.5], [True, False, False], 0),
        ([3.0, 2.0, 2.5], [True, False, True], 2),
        ([3.0, 2.0, 4.0], [True, False, True], 0),
        ([3.0, 2.0, 2.5], [False, True, False], 1),
        ([3.0, 2.0, 2.5], [False, True, True], 1),
        ([3.0, 2.0, 2.0], [True, True, True], 2),
    ],
)
def test_the_newer_is_better_unless_the_older_is_exact_and_perhaps_lower(values, exact, best):
    """A value is exact or too small: one that is too small proves nothing of an exact one."""
    solution = run(steps(values, exact=exact), **limits())
    assert solution.iterate.info["active_triplets"] == best


@pytest.mark.parametrize(
    ("values", "exact", "challenger"),
    [
        ([3.0, 2.0, 2.5], [True, False, False], 2),
        ([3.0, 2.0, 3.5], [True, False, False], 1),
        ([3.0, 3.5], [True, False], None),
        ([3.0, 2.0, 2.5], [True, False, True], None),
        ([3.0, 2.0, 4.0], [True, False, True], None),
        ([3.0, 2.0], [False, False], None),
    ],
)
def test_a_later_iterate_that_may_be_lower_is_told(values, exact, challenger):
    """The newest below the best since the last exact one, which shows what came before it."""
    found = run(steps(values, exact=exact), **limits()).challenger
    assert (None if found is None else found.info["active_triplets"]) == challenger


@pytest.mark.parametrize(("value", "exact", "kept"), [(3.0, True, 0), (1.0, True, 1)])
def test_the_answer_is_not_worse_than_the_start(value, exact, kept):
    """Which is no iterate, and is told with the first one."""
    start = Iterate(np.zeros(1), 2.0, exact=True, info={"number": 0})
    first = Iterate(np.ones(1), value, exact=exact, info={"number": 1}, start=start)
    solution = run(iter([first]), **limits())
    assert solution.iterate.info["number"] == kept
    assert solution.n_iter == 1


def test_the_iterate_that_converged_is_the_solution():
    """Its residual is what the status speaks of, even if an earlier value was lower."""
    solution = run(steps([1.0, 1.1], [None, 0.0], exact=[True, True]), **limits())
    assert solution.status is Status.CONVERGED
    assert solution.iterate.residual == 0.0


# -- clock and trace ---


def test_the_trace_has_a_record_for_each_iterate(clock):
    with time_limit(None):
        solution = run(steps([3.0, 2.0], [None, 0.2], clock=clock), **limits())
    common = {"duality_gap": None}
    assert solution.history == [
        common
        | {"n_iter": 1, "seconds": 1, "objective": 3.0, "residual": None, "active_triplets": 0},
        common
        | {"n_iter": 2, "seconds": 2, "objective": 2.0, "residual": 0.2, "active_triplets": 1},
    ]


@pytest.mark.parametrize(("certified", "gap"), [(True, 0.2), (False, None)])
def test_only_a_certified_residual_is_a_duality_gap(certified, gap):
    iterate = Iterate(np.zeros(1), 2.0, 0.2, certified=certified)
    record = run(iter([iterate]), **limits()).history[-1]
    assert (record["residual"], record["duality_gap"]) == (0.2, gap)


def test_the_clock_runs_while_observers_work_unless_they_stop_it(clock):
    """Validation and checkpoints are part of a fit; callbacks of the user are not."""

    def validate(*_):
        clock.now += 10

    def call_back(*_):
        with fit_clock().paused():
            clock.now += 100

    with time_limit(None):
        solution = run(
            steps([3.0, 2.0, 1.0], clock=clock), observers=[validate, call_back], **limits()
        )
    assert [record["seconds"] for record in solution.history] == [1, 12, 23]
    assert solution.seconds == 33


def test_observers_see_each_iterate_with_its_record():
    seen = []
    run(
        steps([3.0, 2.0]),
        observers=[lambda iterate, trace: seen.append((iterate.value, trace[-1]["n_iter"]))],
        **limits(),
    )
    assert seen == [(3.0, 1), (2.0, 2)]


def test_all_observers_see_the_last_iterate():
    """One that stops the run does not hide it from those after it, nor does a limit."""
    seen = []

    def stop(*_):
        return Status.STOPPED

    run(steps(FOREVER), observers=[stop, lambda *given: seen.append(given)], **limits(max_iter=1))
    assert len(seen) == 1


def test_a_continued_run_goes_on_counting(clock):
    earlier = [{"n_iter": number, "seconds": number / 2} for number in (1, 2, 3)]
    given = [dict(record) for record in earlier]
    with time_limit(None) as fit:
        fit.continue_from(10.0)
        solution = run(steps(FOREVER, clock=clock), history=given, **limits(max_iter=5))
    assert (solution.status, solution.n_iter) == (Status.MAX_ITER, 5)
    assert solution.history[:3] == earlier == given
    assert [record["n_iter"] for record in solution.history[3:]] == [4, 5]
    assert [record["seconds"] for record in solution.history[3:]] == [11, 12]
    assert solution.seconds == 12


def test_seconds_of_an_earlier_run_count_against_the_limit(clock):
    with time_limit(12) as fit:
        fit.continue_from(10.0)
        solution = run(steps(FOREVER, clock=clock), **limits())
    assert (solution.status, solution.n_iter) == (Status.MAX_SECONDS, 2)


# -- words ---


@pytest.mark.parametrize("status", Status)
def test_every_status_has_a_sentence_of_its_own(status):
    assert status.value == status.name.lower()
    assert str(status) == status.value
    others = {other.sentence for other in Status if other is not status}
    assert len(status.sentence) > 10
    assert status.sentence not in others
