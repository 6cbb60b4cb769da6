"""What the descent by proximal multipliers needs of a problem, and the constants of the descent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearfar.solvers.quasi_newton import Bounded, LineSearchable

Matrix = NDArray[np.float64]

WIDTH = 0.1  # of the smoothed hinge, in margins
SEARCH_MARGIN = 0.1  # triplets up to this far outside the margin are kept at hand


@dataclass(frozen=True)
class Tuning:
    """Constants of the descent. They change its speed, not its result."""

    # steps
    memory: int = 30  # pairs that the quasi-Newton method remembers, at most
    first_step: float = 0.1  # length of a step without memory, relative to L
    least_scale: float = 0.02  # share of the norm of LLᵀ that is added to it before it scales steps
    # Newton's method
    close: float = 20.0  # times the tolerance: largest gap at which it precedes a look
    leading: float = 0.005  # share of the largest eigenvalue of M above which a direction leads
    newton_tol: float = 0.1  # tolerance of the conjugate gradients for its step,
    newton_steps: int = 20  # and their largest number
    newton_reach: float = 1e6  # longest step, relative to L
    negligible: float = 1e-20  # M on whitened points, beside margins of 1
    ridge: float = (
        1e-3  # that is added to its Hessian, relative to the curvature along the gradient
    )
    # looks and multipliers
    look_every: int = 5  # iterations between looks
    most_looks: int = 10  # looks in a row without progress, before float64 replaces float32
    nearer: float = 0.9  # progress: a residual below this share of the smallest so far,
    lower: float = 1 - 1e-4  # or an objective below this share of the smallest so far
    settled: float = 1.0  # multipliers advance if the objective fell by less than this share of
    enough: float = 0.2  # their error, and that error is above this share of the tolerance
    most_rests: int = 10  # failures to descend in a row before the end; each halves the width, so
    # that the multipliers move twice as far as after the one before
    less_error: float = 0.9  # new multipliers helped if their error fell below this share
    rounding: float = 1e-14  # gap at hand that is rounding
    # searches
    first_search: int = 3  # iterations between searches at first, and after a late search
    search_growth: float = 1.6  # growth of that number from one search to the next,
    last_search: int = 60  # up to this number;
    nothing_missed: float = 1e-3  # after a search that added less than this share of the objective
    rare_growth: float = 4.0  # it is at least so many times the iterations before that search
    fallen: float = 0.75  # search again once the objective has fallen to this share
    missed: float = 0.1  # a search was late if it added more than this share of the objective,
    widest: float = 1.6  # and the next one looks twice as far outside the margin, up to this far
    few_missed: float = 0.01  # above this share, the next search keeps all triplets at hand
    most_missed: float = 0.5  # above this share, all searches do so for some time
    forgotten: float = 0.1  # share of that memory that each search loses
    most_halvings: int = 6  # of the way since the last search, if there is no memory for triplets
    # coarse start
    coarse: float = 0.05  # gap at which a coarser problem is left if it differs by about as much,
    coarse_fall: float = 0.995  # or the objective of one look after another is above this share
    coarse_steps: int = 200  # iterations there, at most
    near_width: float = 0.05  # of the smoothed hinge after a coarser problem that hardly differs,
    near_search: int = 8  # and iterations to the second search
    # initial scale
    scaled_rows: int = 300  # rows with enough target edges to find the scale
    start_length: float = 2.0  # mean squared length of a target edge, in margins, that is too long
    warm_stretch: float = 1.3  # the same for a factor with about the right scale
    least_share: float = 1 / 16  # of a scale without triplets, to try next
    smallest: float = 1e-8  # least scale of a metric: a metric of zeros would have no directions
    # rank
    dead: float = 1e-5  # share of the largest eigenvalue of M below which a row of L is dropped
    missing: float = 0.5  # share of a typical eigenvalue of M below which L lacks a direction
    nothing: float = 1e-16  # eigenvalue of M, in units of P, below which all points coincide
    unit: float = 1.0  # stands for the typical eigenvalue if M = 0: the pull is about I
    new_row: float = 0.1  # first guess of a new row's eigenvalue, as a share of a typical one
    steep: float = 0.3  # share of the largest violation of the dual that is worth a row


TUNING = Tuning()


class Triplets(Protocol):
    """The triplets at hand, with their multipliers and the width of the smoothed hinge."""

    @property
    def width(self) -> float: ...  # noqa: D102
    def __len__(self) -> int: ...


class EvaluatedFactor(Protocol):
    """A factor and the triplets at hand, with everything that the objective depends on."""

    @property
    def L(self) -> Matrix: ...  # noqa: D102
    @property
    def triplets(self) -> Any: ...  # noqa: D102


class Certificate(Bounded, Protocol):
    """A duality gap of a factor, with the dual slack."""

    @property
    def n_active(self) -> int: ...  # noqa: D102
    @property
    def complementarity(self) -> float: ...  # noqa: D102
    @property
    def confidence(self) -> float | None: ...  # noqa: D102
    @property
    def ratios(self) -> tuple[Matrix, ...]: ...  # noqa: D102
    @property
    def directions(self) -> tuple[Matrix, ...]: ...  # noqa: D102
    @property
    def free(self) -> tuple[Matrix, ...]: ...  # noqa: D102


At = TypeVar("At", bound=EvaluatedFactor)
Known = TypeVar("Known", bound=Triplets)
Along = TypeVar("Along", bound=LineSearchable)


class HingeProblem(Protocol[At, Known, Along]):
    """What the solver needs of a problem; see `nearfar.problems.lmnn`."""

    @property
    def is_single(self) -> bool: ...  # noqa: D102
    @property
    def P(self) -> Matrix: ...  # noqa: D102
    def in_double(self) -> HingeProblem[At, Known, Along]: ...  # noqa: D102
    def sampled(self, rows: int) -> HingeProblem[At, Known, Along]: ...  # noqa: D102
    def coarser(self) -> tuple[HingeProblem[At, Known, Along], bool] | None: ...  # noqa: D102
    def normalised(self, L: Matrix) -> Matrix: ...  # noqa: D102
    def survey(  # noqa: D102
        self,
        L: Matrix,
        margin: float,
        width: float,
        previous: Known | None = None,
        *,
        keep: bool = False,
        insist: bool = False,
    ) -> At: ...
    def place(self, L: Matrix, triplets: Known) -> At: ...  # noqa: D102
    def objective(self, at: At) -> tuple[float, int]: ...  # noqa: D102
    def complementarity(self, at: At) -> float: ...  # noqa: D102
    def gradient(self, at: At) -> Matrix: ...  # noqa: D102
    def curvature(self, at: At, rows: Matrix) -> Callable[[Matrix], Matrix]: ...  # noqa: D102
    def line(self, at: At, direction: Matrix) -> Along: ...  # noqa: D102
    def rescaling(self, at: At, share: float) -> Along: ...  # noqa: D102
    def move(self, at: At, line: Along, t: float) -> At: ...  # noqa: D102
    def advance_multipliers(self, at: At, width: float) -> At: ...  # noqa: D102
    def narrow(self, at: At, width: float) -> At: ...  # noqa: D102
    def bound(self, at: At) -> tuple[Certificate, At]: ...  # noqa: D102
    def certify(  # noqa: D102
        self, L: Matrix, previous: Known | None = None, *, keep: bool = False
    ) -> tuple[Certificate, Known]: ...
