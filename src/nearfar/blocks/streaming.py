"""Tasks that compute on a device, whose results are in host memory when they do not fit there.

One thread computes. Another copies what the next task needs, if that is little, while it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, fields, is_dataclass
from threading import Semaphore
from traceback import clear_frames
from typing import Any
from weakref import WeakSet

from nearfar.blocks.engine import Task, Threads, _done, _result, run_task, unchanged
from nearfar.errors import MemoryLimitError
from nearfar.kernels import (
    Array,
    check_memory,
    free_memory,
    held_memory,
    is_torch,
    transfer_to,
)

KEPT = 0.15  # share of the memory up to which results stay on the device
PLACES = 2  # tasks on the device at a time: one that computes, and the next,
AHEAD = 0.1  # if what that needs takes no larger share


@dataclass
class _Loaded:
    """Arguments of a task on the device."""

    values: list[Any]
    origins: dict[int, Array]  # in host memory, of tensors that were copied
    places: int


class Streaming(Threads):
    """Tasks on one device, of which memory holds a few at a time."""

    def __init__(self, device: str) -> None:
        self.transfer = transfer_to(device)
        self._copies, self._pool = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._places = Semaphore(PLACES)  # a large task takes all
        self._begun: WeakSet[Task] = WeakSet()

    @property
    def memory(self) -> float:
        """Bytes that may be used on the device."""
        reference = self.transfer.reference
        return free_memory(reference) + held_memory(reference)

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], name: str, shared: Any = ()
    ) -> list[Task]:
        """As `nearfar.blocks.Engine.map`."""
        del name
        if function is unchanged:
            return [item if isinstance(item, Future) else _done(item) for item in columns[0]]
        return [self._submit(function, (*items, *shared)) for items in zip(*columns, strict=True)]

    def _submit(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Task:
        loaded = self._copies.submit(copy_context().run, self._load, args)
        task = self._pool.submit(copy_context().run, self._compute, function, loaded)
        task.add_done_callback(lambda _: loaded.add_done_callback(self._leave))  # or is cancelled
        self._begun.update((loaded, task))
        return task

    def _load(self, args: tuple[Any, ...]) -> _Loaded:
        """The arguments on the device, once there is a place for them."""
        values = [_result(item) for item in args]
        away: dict[int, Array] = {}
        for value in values:
            changed(value, lambda x: away.setdefault(id(x), x) if self.transfer.is_away(x) else x)
        size = sum(x.nbytes for x in away.values())
        places = 1 if size <= AHEAD * self.memory else PLACES
        for _ in range(places):
            self._places.acquire()
        try:
            if places == PLACES:  # nothing else is computed
                check_memory(
                    float(size),
                    "to copy what a block of rows needs to the device",
                    "Fit to fewer rows, lower n_neighbors",
                    self.transfer.reference,
                )
            with self.transfer.beside():
                there = {key: self.transfer.load(x) for key, x in away.items()}
                values = [changed(value, lambda x: there.get(id(x), x)) for value in values]
                self.transfer.wait()
        except BaseException:
            self._places.release(places)
            raise
        return _Loaded(values, {id(there[key]): x for key, x in away.items()}, places)

    def _compute(self, function: Callable[..., Any], loaded: Future[_Loaded]) -> Any:
        args = loaded.result()
        try:
            found = run_task(function, *args.values)
            if held_memory(self.transfer.reference) > KEPT * self.memory:
                found = self._away(found, args.origins)
            self.transfer.wait()
            return found
        except BaseException as error:
            clear_frames(error.__traceback__)  # what was computed is not kept beside later tasks
            raise
        finally:
            args.values.clear()

    def _leave(self, loaded: Future[_Loaded]) -> None:
        if not loaded.cancelled() and loaded.exception() is None:
            args = loaded.result()
            args.values.clear()
            args.origins.clear()
            self._places.release(args.places)

    def _away(self, value: Any, origins: dict[int, Array]) -> Any:
        """A result in host memory; what came from there is not copied back."""
        copies = dict(origins)
        known: list[Array] = []  # so that no number of an object is used twice

        def away(x: Array) -> Array:
            if id(x) not in copies:
                known.append(x)
                copies[id(x)] = self.transfer.unload(x)
            return copies[id(x)]

        return changed(value, away)

    def finish(self, tasks: Sequence[Task]) -> None:
        """As `nearfar.blocks.Engine.finish`."""
        message = ""
        try:
            super().results(tasks)
        except MemoryLimitError as error:
            message = str(error)
        if message:
            self._stop()
            raise MemoryLimitError(message)  # no task keeps this one, and so what its frames hold

    def _stop(self) -> None:
        """End all tasks after one has failed, and let errors hold nothing."""
        begun = list(self._begun)
        for task in begun:
            task.cancel()
        wait(begun)
        for task in begun:
            error = None if task.cancelled() else task.exception()
            while error is not None:
                clear_frames(error.__traceback__)
                error.__traceback__, error = None, error.__context__

    def results(self, tasks: Sequence[Task]) -> list[Any]:
        """As `nearfar.blocks.Engine.results`; tensors are on the device."""
        self.finish(tasks)
        here = [changed(task.result(), self.transfer.load) for task in tasks]
        self.transfer.wait()
        return here

    def n_at_a_time(self) -> int:
        """As `nearfar.blocks.Engine.n_at_a_time`."""
        return 2


def changed(value: Any, change: Callable[[Array], Array]) -> Any:
    """A value with all tensors in it changed; itself if none of them is."""
    if is_torch(value):
        return change(value)
    if isinstance(value, list | tuple):
        parts: Any = [changed(part, change) for part in value]
        same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if same else type(value)(parts)
    if isinstance(value, dict):
        parts = {key: changed(part, change) for key, part in value.items()}
        return value if all(parts[key] is value[key] for key in value) else parts
    if not is_dataclass(value) or isinstance(value, type):
        return value
    state: Any = value.__getstate__()  # without what a shard only remembers
    old = {field.name: state[field.name] for field in fields(value)}
    new = {name: changed(part, change) for name, part in old.items()}
    if all(new[name] is old[name] for name in new):
        return value
    other = object.__new__(type(value))
    other.__dict__.update(new)
    return other
