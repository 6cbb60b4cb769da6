"""Where tasks on blocks run: on the cluster of the current client, or on threads of this machine.

A task is a pure function of immutable inputs: values, and the results of other tasks, which stay
where they were computed. So a task may be repeated anywhere, and is: Dask computes the results of a
lost worker again, from those that they depend on. Nothing here waits for a particular worker, and
workers do not wait for each other.

Sums are taken in the order of the tasks (`Engine.total`). So results do not depend on the number of
workers, nor on which of them ends first.
"""

from __future__ import annotations

import sys
import uuid
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any, Protocol

import numpy as np

from nearfar.blocks.malloc import keep_freed_memory, returned
from nearfar.errors import ClusterError, MissingExtraError
from nearfar.kernels import GIGABYTE
from nearfar.kernels.threads import n_threads, one_thread
from nearfar.limits import check_time, fit_clock, memory_limit

Task = Any
"""The future result of a task; drop it to free the result."""

RETRIES = 2  # of a task that raises, for example because a file could not be read
EMBEDDED = 1 << 22  # bytes of a shared value, over all tasks, up to which each task carries it
TASK_SHARE = 0.5  # of the memory limit of a worker that a task may use
HELD, HELD_BYTES = 16, 1 << 24  # rounds, and bytes of their results, that are freed together
FAN_IN = 16  # results that are added up where they are, before the sums are fetched


def is_dask(X: Any) -> bool:
    """Tell whether X is a collection of Dask, such as an array, without importing Dask."""
    return any(kind.__module__.partition(".")[0] == "dask" for kind in type(X).__mro__)


class Sized:
    """Results that hold arrays give their size, so that tasks run where large ones are.

    Dask would take an object of a class that it does not know for some bytes, and move it at will.
    """

    def __sizeof__(self) -> int:
        return bytes_in(vars(self))


def bytes_in(value: Any) -> int:
    """The bytes of all arrays in containers and objects."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(map(bytes_in, value.values()))
    if isinstance(value, tuple | list):
        return sum(map(bytes_in, value))
    return bytes_in(vars(value)) if hasattr(value, "__dataclass_fields__") else sys.getsizeof(value)


class Engine(Protocol):
    """Runs tasks. Only `finish`, `results` and `total` wait for them."""

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], name: str, shared: Any = ()
    ) -> list[Task]:
        """Tasks ``function(*items, *shared)`` for the items of the columns, as `map` takes them.

        Items may be tasks or lists of them, of which the function gets the results; ``shared``
        values go to each worker once. ``name`` is what the dashboard of the cluster shows.
        """

    def finish(self, tasks: Sequence[Task]) -> None:
        """Wait until all are done; raise the error of one that failed.

        Checks the time limit of the fit. What is not done is cancelled if the wait is interrupted.
        """

    def results(self, tasks: Sequence[Task]) -> list[Any]:
        """The results, in the order of the tasks; waits as `finish` does."""

    def spread(self, tasks: Sequence[Task]) -> list[Task]:
        """Wait until all are done, as `finish` does; the same results in equal numbers everywhere.

        Tasks run where their inputs are: a worker with more of the rows than others makes these
        wait. That is a wish, and a task may run elsewhere where a worker is gone.
        """

    def compute(self, lazy: Sequence[Any]) -> list[Task]:
        """Tasks for values of ``dask.delayed``, which share what their graphs have in common."""

    def total(self, tasks: Sequence[Task]) -> Any:
        """The sum of the results in the order of the tasks: arrays, numbers, or tuples of them."""

    def n_at_a_time(self) -> int:
        """How many tasks run at a time."""


def current_engine() -> Engine:
    """The cluster of the current client of `distributed`, or threads of this machine."""
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            client = distributed.Client.current(allow_global=True)
        except ValueError:  # there is none
            return Threads()
        if client.status != "closed":
            return Cluster(client)
    return Threads()


class _Summed:
    """How both engines add up results."""

    def total(self: Any, tasks: Sequence[Task]) -> Any:
        """The sum of the results in the order of the tasks: arrays, numbers, or tuples of them.

        Of many tasks it is a sum of sums, which depends on their number alone.
        """
        while len(tasks) > FAN_IN:
            groups = [tasks[first : first + FAN_IN] for first in range(0, len(tasks), FAN_IN)]
            tasks = [self.map(added_up, *([t] for t in some), name="sum")[0] for some in groups]
        return added_up(*self.results(tasks))


class Threads(_Summed):
    """Tasks on threads of this machine; each uses one."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(n_threads())

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], name: str, shared: Any = ()
    ) -> list[Task]:
        """As `Engine.map`. A task waits for earlier ones only, and these have begun before it."""
        del name
        return [
            self._pool.submit(copy_context().run, run_task, function, *items, *shared)
            for items in zip(*columns, strict=True)
        ]

    def finish(self, tasks: Sequence[Task]) -> None:
        """As `Engine.finish`."""
        self.results(tasks)

    def results(self, tasks: Sequence[Task]) -> list[Any]:
        """As `Engine.results`."""
        try:
            left = fit_clock().seconds_left
            wait(tasks, None if np.isinf(left) else max(left, 0.0))
            check_time()
            return [task.result() for task in tasks]
        except BaseException:
            for task in tasks:
                task.cancel()
            raise

    def spread(self, tasks: Sequence[Task]) -> list[Task]:
        """As `Engine.spread`: all are here."""
        self.finish(tasks)
        return list(tasks)

    def n_at_a_time(self) -> int:
        """As `Engine.n_at_a_time`."""
        return n_threads()

    def compute(self, lazy: Sequence[Any]) -> list[Task]:
        """As `Engine.compute`, but the values are there when it returns."""
        import dask

        return [_done(value) for value in dask.compute(*lazy, scheduler="threads")]


class Cluster(_Summed):
    """Tasks on the workers of a cluster; each uses one thread."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._held: list[list[Task]] = []
        self._held_bytes = 0

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], name: str, shared: Any = ()
    ) -> list[Task]:
        """As `Engine.map`."""
        if not len(columns[0]):
            return []
        rows = [[function] * len(columns[0]), *columns]
        rows += [[self._shared(value, len(columns[0]))] * len(columns[0]) for value in shared]
        keys = [f"{name}-{uuid.uuid4().hex}" for _ in columns[0]]
        with _errors_of_cluster(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # what tasks carry is meant
            return list(
                self.client.map(run_on_worker, *rows, key=keys, retries=RETRIES, pure=False)
            )

    def _shared(self, value: Any, count: int) -> Any:
        """The value itself if it is small; else a task, whose result travels between workers.

        It is not scattered: a task can be done again where its result is lost.
        """
        if bytes_in(value) * count <= EMBEDDED:
            return value
        return self.client.submit(unchanged, value, key=f"broadcast-{uuid.uuid4().hex}")

    def finish(self, tasks: Sequence[Task]) -> None:
        """As `Engine.finish`."""
        self._wait(tasks)
        failed = [task for task in tasks if task.status != "finished"]
        if failed:
            self.results(failed)

    def results(self, tasks: Sequence[Task]) -> list[Any]:
        """As `Engine.results`."""
        if not np.isinf(fit_clock().seconds_left):
            self._wait(tasks)
        try:
            with _errors_of_cluster():
                found = [aligned(one) for one in self.client.gather(list(tasks))]
        except KeyboardInterrupt:
            self.client.cancel(list(tasks))
            raise
        self._hold(tasks, bytes_in(found))
        return found

    def _hold(self, tasks: Sequence[Task], n_bytes: int) -> None:
        """Free results that were fetched together with those of later rounds, if they are small.

        A client of Dask sends a message at most every 10 ms. That a result is no longer needed is
        one, and the next round would wait for it: rounds of a fit take little more than that.
        """
        self._held.append(list(tasks))
        self._held_bytes += n_bytes
        if len(self._held) > HELD or self._held_bytes > HELD_BYTES:
            self._held, self._held_bytes = [], 0

    def spread(self, tasks: Sequence[Task]) -> list[Task]:
        """As `Engine.spread`: of workers with too many results, the last ones move."""
        self.finish(tasks)
        with _errors_of_cluster():
            threads: dict[str, int] = self.client.nthreads()
            held = self.client.who_has(list(tasks))
        where = {name: list[int]() for name in threads}
        for number, task in enumerate(tasks):
            names = [name for name in held.get(task.key, ()) if name in where]
            if names:
                min((where[name] for name in names), key=len).append(number)
        spread, share = list(tasks), len(tasks) / max(1, sum(threads.values()))

        def excess(name: str) -> float:
            return len(where[name]) - share * threads[name]

        while where:
            most, least = max(where, key=excess), min(where, key=excess)
            if excess(most) - excess(least) <= 1 or not where[most]:
                break  # also if the workers that held the results are gone
            number = where[most].pop()
            where[least].append(number)
            spread[number] = self.client.submit(
                unchanged,
                tasks[number],
                key=f"spread-{uuid.uuid4().hex}",
                workers=[least],
                allow_other_workers=True,
                pure=False,
            )
        self.finish(spread)
        return spread

    def _wait(self, tasks: Sequence[Task]) -> None:
        from distributed import wait as wait_for

        left = fit_clock().seconds_left
        try:
            with _errors_of_cluster():
                wait_for(list(tasks), timeout=None if np.isinf(left) else max(left, 1e-3))
        except (KeyboardInterrupt, TimeoutError):
            self.client.cancel(list(tasks))
            check_time()
            raise

    def n_at_a_time(self) -> int:
        """As `Engine.n_at_a_time`."""
        with _errors_of_cluster():
            return max(1, int(sum(self.client.nthreads().values())))

    def compute(self, lazy: Sequence[Any]) -> list[Task]:
        """As `Engine.compute`."""
        with _errors_of_cluster():
            return list(self.client.compute(list(lazy), retries=RETRIES))


class _errors_of_cluster:
    """Says what to do where the cluster, and not the computation, has failed."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            return
        from distributed import KilledWorker
        from distributed.client import ClosedClientError
        from distributed.comm import CommClosedError

        if isinstance(error, KilledWorker):
            raise ClusterError(
                "a task killed every worker that tried it, perhaps for want of memory"
                f" ({error!s:.200}). Give the workers more memory, or fit to fewer rows."
            ) from error
        if isinstance(error, CancelledError | ClosedClientError | CommClosedError):
            raise ClusterError(
                "the Dask scheduler is gone, or has dropped the tasks of this fit"
                f" ({error!s:.200}). Start a cluster and fit again; with checkpoint=... the fit"
                " goes on where it stopped."
            ) from error


def import_dask() -> Any:
    """The package `dask`, or the command that installs it."""
    try:
        import dask.array
    except ImportError as error:
        raise MissingExtraError.for_extra("dask", "dask") from error
    return dask


def run_task(function: Callable[..., Any], *args: Any) -> Any:
    """What a worker does: wait for results of threads, and compute in one thread."""
    with one_thread():
        return function(*map(_result, args))


def run_on_worker(function: Callable[..., Any], *args: Any) -> Any:
    """The same in a process of a cluster, which uses freed memory again.

    A task that would need more than its part of the worker's memory limit is refused by
    `nearfar.kernels.check_memory`: triplets of LMNN, of which a search may find any number, would
    end the worker otherwise. Results of other tasks do not count, since Dask writes them to disk.
    """
    limit = _limit_of_worker()
    with memory_limit(TASK_SHARE * limit / GIGABYTE if limit else None):
        if not keep_freed_memory(limit):
            return run_task(function, *args)
        try:
            return run_task(function, *args)
        finally:
            returned.after_task(limit)


def _limit_of_worker() -> int | None:
    """The memory limit of this worker in bytes; None if there is none."""
    from distributed import get_worker

    limit: int | None = get_worker().memory_manager.memory_limit
    return limit or None


def _result(item: Any) -> Any:
    """The value of an argument: of a thread's task, or of a list of them, what they returned."""
    if isinstance(item, list):
        return [_result(part) for part in item]
    return item.result() if isinstance(item, Future) else aligned(item)


def aligned(value: Any) -> Any:
    """The value with arrays in it whose entries lie at multiples of their size, as usual.

    Of arrays that come from another process or from disk, Dask leaves the entries anywhere. NumPy
    adds those up in another order, and multiplies them by another routine: rounding differs.
    """
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else value.copy(order="K")
    if isinstance(value, list | tuple):
        parts = [aligned(part) for part in value]
        if all(found is part for found, part in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        held = list(value.values())
        parts = aligned(held)
        return value if parts is held else dict(zip(value, parts, strict=True))
    if isinstance(value, Sized) or (
        hasattr(value, "__dataclass_fields__") and not isinstance(value, type)
    ):
        for name, part in list(vars(value).items()):
            found = aligned(part)
            if found is not part:  # of the same numbers, so that other tasks may read it
                vars(value)[name] = found
    return value


def unchanged(value: Any) -> Any:
    """The value itself, as the result of a task."""
    return value


def _done(value: Any) -> Task:
    """A task that is done."""
    task: Task = Future()
    task.set_result(value)
    return task


def added_up(*values: Any) -> Any:
    """The sum from left to right."""
    if isinstance(values[0], tuple):
        return tuple(added_up(*parts) for parts in zip(*values, strict=True))
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def rounds(n_blocks: int, *, both: bool = True) -> Iterable[list[tuple[int, int]]]:
    """All pairs of blocks, in rounds in which each block meets one other, as head and as other.

    Round 0 pairs blocks with themselves. Unless ``both`` orders of a pair are wanted, half of the
    rounds suffice.
    """
    last = n_blocks if both else n_blocks // 2 + 1
    for step in range(last):
        pairs = [(head, (head + step) % n_blocks) for head in range(n_blocks)]
        if not both and step and 2 * step == n_blocks:
            pairs = pairs[: n_blocks // 2]
        yield pairs
