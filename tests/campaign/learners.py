"""The convex learners with their parameters, each beside its judge."""

from __future__ import annotations

import re
import warnings
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from nearfar import (
    LMNN,
    MCML,
    MMC,
    MVU,
    RCA,
    DMLEig,
    KernelLMNN,
    KernelMCML,
    KernelMMC,
    MultiMetricLMNN,
)
from nearfar.errors import ConvergenceWarning, NearfarError, NearfarWarning
from tests.campaign import judges
from tests.campaign.judges import Judged, Lengths
from tests.campaign.strategies import Data

STATUSES = ("converged", "max_iter", "stalled")
SQUARED = 1e139  # spread up to which, and inverse from which, data must be accepted
HARDLY = 1e-12, 1e-3  # share of the longest direction, between which another one hardly counts
SHORTEST = 1e-70  # the same of a length whose square of a square is no float
DIFFERENT = 1e-4  # length of an edge, relative to the longest, that an unfolding must not lose
SPAN = 1e-6, 1e-12  # share of a direction that near pairs may miss, and that far pairs then have

WELL_POSED = 1e-9  # ridge of DML-eig without shrinkage

Parameters = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """Data and parameters, with the target neighbours where the method has any."""

    data: Data
    parameters: Parameters
    edges: tuple[tuple[int, int], ...] = ()
    given: bool = False  # whether the target neighbours have to be given, since ties decide

    @property
    def target_table(self) -> np.ndarray:
        """The edges as rows of neighbours, −1 for none."""
        rows: list[list[int]] = [[] for _ in self.data.y]
        for head, tail in self.edges:
            rows[head].append(tail)
        width = max(map(len, rows))
        return np.array([row + [-1] * (width - len(row)) for row in rows])


def some_shrinkage(setting: Setting) -> Setting:
    """With a number in place of "auto", which chooses one above zero."""
    if setting.parameters.get("shrinkage") != "auto":
        return setting
    return replace(setting, parameters=setting.parameters | {"shrinkage": 0.5})


@dataclass(frozen=True)
class Fit:
    """A fitted model, or the error of nearfar that refused it; and the warnings."""

    model: Any
    error: NearfarError | None
    warnings: tuple[Warning, ...]


@dataclass(frozen=True)
class Learner:
    """How to fit and to judge a method."""

    name: str

    def __str__(self) -> str:
        return self.name

    # -- to fit --------------------------------------------------------------------------------

    def parameters(self) -> st.SearchStrategy[Parameters]:
        """Parameters that change the problem, or the way to its solution."""
        raise NotImplementedError

    def setting(self, data: Data, parameters: Parameters) -> Setting:
        """The problem; target neighbours are chosen once, also for other forms of the data."""
        return Setting(data, parameters)

    def build(self, setting: Setting, tol: float) -> Any:
        """An estimator."""
        raise NotImplementedError

    def arguments(self, setting: Setting) -> tuple[Any, ...]:
        """What ``fit`` takes beside X."""
        return (setting.data.y,)

    def fit(self, setting: Setting, tol: float) -> Fit:
        """Fit; every exception and warning that is not nearfar's own fails the test."""
        X, model, error = setting.data.X.copy(), self.build(setting, tol), None
        X.setflags(write=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model.fit(X, *self.arguments(setting))
            except NearfarError as found:
                error = found
        for warning in caught:
            assert issubclass(warning.category, NearfarWarning), (
                f"a warning that is not nearfar's: {warning.category.__name__}: {warning.message}"
                f" ({warning.filename}:{warning.lineno})"
            )
        return Fit(model, error, tuple(warning.message for warning in caught))  # type: ignore[misc]

    def may_refuse(self, setting: Setting, error: NearfarError) -> bool:
        """Whether an error says what is so."""
        text, data = str(error), setting.data
        sizes = np.unique(data.y, return_counts=True)[1]
        if "at least two classes" in text:
            return len(sizes) < 2
        if "class with two or more members" in text:
            return bool(sizes.max() == 1)
        if re.search("spread of X|range of float64", text):
            return not 1 / SQUARED < data.spread < SQUARED
        return False

    # -- to judge ------------------------------------------------------------------------------

    def judged(self, setting: Setting, model: Any) -> Judged:
        """What the returned map is worth."""
        raise NotImplementedError

    def excess(self, setting: Setting, model: Any) -> float:  # noqa: ARG002
        """How far the returned map is outside the feasible set, beyond rounding, relative."""
        return 0.0

    def resolved(self, setting: Setting, model: Any) -> tuple[Setting, Any]:
        """The setting with the shrinkage that "auto" chose, and the model in the units that it did.

        Features that are dead before they are brought to one scale stay so.
        """
        if setting.parameters.get("shrinkage") != "auto":
            return setting, model
        chosen = replace(
            setting, parameters=setting.parameters | {"shrinkage": float(model.shrinkage_)}
        )
        scale = getattr(model, "feature_scale_", None)
        if scale is None:
            return chosen, model
        X = np.where(setting.data.live, setting.data.X, setting.data.X[:1])
        model = copy(model)
        model.components_ = model.components_ / scale
        return replace(chosen, data=Data(X * scale.astype(X.dtype), setting.data.y)), model

    def same_program(self, model: Any, other: Any) -> bool:  # noqa: ARG002
        """Whether two fits to other tolerances solved the same program."""
        return True

    def starts(self, setting: Setting, model: Any) -> dict[str, float]:
        """What simple maps are worth."""
        raise NotImplementedError

    def optimum(self, setting: Setting, model: Any) -> float | None:
        """By a general solver, or None."""
        raise NotImplementedError

    @property
    def sense(self) -> int:
        """1 to minimise, −1 to maximise."""
        return 1

    def size(self, value: float) -> float:
        """What gaps are relative to."""
        return max(1.0, abs(value))

    def bound(self, model: Any) -> float:
        """Beyond which no objective can be, as the model says."""
        return float(model.objective_ - model.duality_gap_ * self.size(model.objective_))

    def rounded_gap(self, setting: Setting, model: Any) -> float:  # noqa: ARG002
        """The gap that is due to the rounding of the map, where there is no tolerance."""
        return 0.0

    def keeps(self, setting: Setting, relation: str) -> bool:
        """Whether the problem does not depend on the order or the rounding of the data.

        What "auto" chooses depends on the order of rows, and on how many features there are.
        """
        return relation == "units" or setting.parameters.get("shrinkage") != "auto"

    def rescaled(self, setting: Setting, scale: float) -> float:  # noqa: ARG002
        """By how much data times ``scale`` multiply the objective; NaN where that is not known."""
        return 1.0

    def with_dead_column(self, setting: Setting) -> float:  # noqa: ARG002
        """By how much a constant column multiplies the objective; NaN where that is not known."""
        return 1.0


# -- the linear maps of labelled points ------------------------------------------------------------


def orthonormal(X: Any) -> tuple[np.ndarray, float]:
    """Coordinates of tame points along directions that they span, and their unit."""
    X = np.asarray(X, dtype=np.float64)
    X = X - X.mean(axis=0)
    unit = float(np.abs(X).max())
    U, values, _ = np.linalg.svd(X / unit, full_matrices=False)
    kept = values > HARDLY[0] * values[0]
    return U[:, kept] * values[kept], unit


def is_solvable(data: Data) -> bool:
    """Whether a general solver can be believed: tame points that differ clearly or not at all."""
    if not data.is_tame:
        return False
    X = data.X.astype(np.float64)
    values = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    shares = values / values[0]
    return not ((shares > HARDLY[0]) & (shares < HARDLY[1])).any()


def squares_of(data: Data) -> Any:
    """Squared Euclidean distances, (n, n)."""
    return (judges.differences(data.exact) ** 2).sum(-1)


def live_squares(data: Data) -> Any:
    """The same without the columns that get no weight."""
    return (judges.differences(data.exact[:, data.live]) ** 2).sum(-1)


def right_inverse(W: np.ndarray) -> np.ndarray:
    """W⁺, whose columns may be in any units."""
    sizes = np.abs(W).max(axis=0, initial=0.0)
    sizes = np.where(sizes > 0, sizes, 1)
    return np.asarray(np.linalg.pinv(W / sizes) / sizes[:, None])


class _LargeMargin(Learner):
    def parameters(self) -> st.SearchStrategy[Parameters]:
        return st.fixed_dictionaries(
            {
                "n_neighbors": st.integers(1, 3),
                "push_weight": st.sampled_from([0.5, 0.2, 0.9]),
                "shrinkage": st.sampled_from([0.0, 0.05, 0.7, "auto"]),
            }
        )

    def setting(self, data: Data, parameters: Parameters) -> Setting:
        """With "auto", targets are neighbours of a distance that the learner chooses."""
        edges, tied = judges.nearest_of_class(squares_of(data), data.y, parameters["n_neighbors"])
        return Setting(data, parameters, tuple(edges), tied or parameters["shrinkage"] == "auto")

    def frame(self, setting: Setting, model: Any) -> np.ndarray:
        """W, whose distance the shrinkage keeps."""
        W = model.prior_components_
        live = setting.data.live & (setting.data.X[:1] != setting.data.X).any(axis=0)
        return np.eye(len(live))[live] if W is None else W

    def metric_of(self, setting: Setting) -> np.ndarray | None:  # noqa: ARG002
        """Which metric a point has; None for one metric."""
        return None

    def judge(self, setting: Setting, model: Any) -> judges.LargeMargin:
        W = self.frame(setting, model)
        return judges.LargeMargin(
            setting.data.y,
            list(setting.edges),
            setting.parameters["push_weight"],
            ((judges.differences(setting.data.exact) @ W.T.astype(judges.Wide)) ** 2).sum(-1),
            setting.parameters["shrinkage"],
            max(1, len(W)),
            self.metric_of(setting),
        )

    def framed(self, setting: Setting, model: Any) -> tuple[np.ndarray, np.ndarray]:
        """Maps N of W x with NW the learned ones, (C, r, k), and what they are sums of, in size."""
        W = self.frame(setting, model)
        inverse = right_inverse(W)
        L = model.components_[None] if model.components_.ndim == 2 else model.components_
        N = L.astype(judges.Wide) @ inverse
        N = N + (L - N @ W) @ inverse
        return N, np.abs(L) @ np.abs(inverse)

    def judged(self, setting: Setting, model: Any) -> Judged:
        maps, differences = model.components_, judges.differences(setting.data.exact)
        traces = []
        for N, sizes in zip(*self.framed(setting, model), strict=True):
            rounding = judges.ROUNDINGS * float(np.finfo(maps.dtype).eps)
            traces.append(Judged(float((N**2).sum()), rounding * float((np.abs(N) * sizes).sum())))
        if maps.ndim == 2:
            return self.judge(setting, model).judged(Lengths.under(maps, differences), traces)
        metric_of, rows = self.metric_of(setting), np.arange(len(setting.data.y))
        np.testing.assert_array_equal(model.metric_of_, metric_of)
        lengths = [Lengths.under(L, differences) for L in maps]
        squares, errors = (
            np.stack([getattr(each, name) for each in lengths])[
                metric_of[None], rows[:, None], rows
            ]
            for name in ("squares", "errors")
        )
        return self.judge(setting, model).judged(Lengths(squares, errors), traces)

    def excess(self, setting: Setting, model: Any) -> float:
        floor = self.judge(setting, model).floor
        if not floor:
            return 0.0
        N, _ = self.framed(setting, model)
        return max(judges.lack_of_floor(L.astype(model.components_.dtype), floor) for L in N)

    def starts(self, setting: Setting, model: Any) -> dict[str, float]:
        judge = self.judge(setting, model)
        found = {} if judge.floor else {"zero": judge.at_zero()}
        worth = judge.at_best_multiple(judge.kept, judge.directions)
        return found | {"the best multiple of what is kept": worth}

    def optimum(self, setting: Setting, model: Any) -> float | None:
        X = (setting.data.exact - setting.data.exact[0]).astype(np.float64)  # exact far from 0
        points, unit = orthonormal(X @ self.frame(setting, model).T)
        return self.judge(setting, model).optimum(points, unit**-2)


class _LMNN(_LargeMargin):
    def parameters(self) -> st.SearchStrategy[Parameters]:
        init = st.sampled_from(["auto", "auto", "identity"])
        return st.tuples(super().parameters(), init).map(
            lambda found: found[0] | {"init": found[1]}
        )

    def build(self, setting: Setting, tol: float) -> Any:
        return LMNN(**setting.parameters, tol=tol)

    def arguments(self, setting: Setting) -> tuple[Any, ...]:
        return (setting.data.y, setting.target_table if setting.given else None)


class _OfAllNeighbours(_LargeMargin):
    """Without a way to give target neighbours: where ties decide, all of the class are taken."""

    def setting(self, data: Data, parameters: Parameters) -> Setting:
        found = super().setting(data, parameters)
        if not found.given:
            return found
        parameters = parameters | {"n_neighbors": len(data.y)}
        return Setting(data, parameters, tuple(judges.all_of_class(data.y)))


class _MultiMetricLMNN(_OfAllNeighbours):
    """With a shrinkage, the metrics keep the distance of one that is learned first, to a gap.

    With "auto", rows that are left out may choose that one metric: a fit of another program.
    """

    def parameters(self) -> st.SearchStrategy[Parameters]:
        return super().parameters().filter(lambda found: found["shrinkage"] != "auto")

    def build(self, setting: Setting, tol: float) -> Any:
        return MultiMetricLMNN(**setting.parameters, tol=tol)

    def metric_of(self, setting: Setting) -> np.ndarray | None:
        return np.unique(setting.data.y, return_inverse=True)[1]

    def same_program(self, model: Any, other: Any) -> bool:
        return np.array_equal(model.prior_components_, other.prior_components_)

    def keeps(self, setting: Setting, relation: str) -> bool:
        return setting.parameters["shrinkage"] == 0 and super().keeps(setting, relation)


def framed(setting: Setting, model: Any) -> tuple[Setting, Any]:
    """With "auto" the program is about points W x: these, and the model as a map of them."""
    W = getattr(model, "prior_components_", None)
    if W is None:
        return setting, model
    X = np.where(setting.data.live, setting.data.exact, setting.data.exact[:1])
    model, data = copy(model), Data((X - np.median(X, axis=0)) @ W.T, setting.data.y)
    model.components_ = (model.components_ @ right_inverse(W)).astype(model.components_.dtype)
    return replace(setting, data=data), model


class _MCML(Learner):
    def parameters(self) -> st.SearchStrategy[Parameters]:
        return st.fixed_dictionaries(
            {
                "shrinkage": st.sampled_from([0.0, 0.2, "auto"]),
                "init": st.sampled_from(["auto", "auto", "identity"]),
            }
        )

    def build(self, setting: Setting, tol: float) -> Any:
        return MCML(**setting.parameters, tol=tol)

    def resolved(self, setting: Setting, model: Any) -> tuple[Setting, Any]:
        return framed(*super().resolved(setting, model))

    def judge(self, setting: Setting) -> judges.Collapse:
        data, rho = setting.data, setting.parameters["shrinkage"]
        d = int((data.live & (data.exact != data.exact[:1]).any(axis=0)).sum())
        return judges.Collapse.shrunk(data.y, live_squares(data), rho, d, floored=True)

    def judged(self, setting: Setting, model: Any) -> Judged:
        L, judge, data = model.components_, self.judge(setting), setting.data
        lengths = Lengths.under(L, judges.differences(data.exact))
        varies = (data.live & (data.exact != data.exact[:1]).any(axis=0)).sum()
        trace = float((L.astype(judges.Wide) ** 2).sum() - judge.floor * varies)
        return judge.judged(lengths, trace)

    def starts(self, setting: Setting, model: Any) -> dict[str, float]:  # noqa: ARG002
        judge, data = self.judge(setting), setting.data
        found = {"zero": judge.at_zero()}
        if data.spread > 0:
            best = judge.at_best_multiple(squares_of(data), data.X.shape[1])
            found["the best multiple of the identity"] = best
        return found

    def optimum(self, setting: Setting, model: Any) -> float | None:  # noqa: ARG002
        points, unit = orthonormal(setting.data.X)
        return self.judge(setting).optimum(points, unit**2)


class _PairLearner(Learner):
    def resolved(self, setting: Setting, model: Any) -> tuple[Setting, Any]:
        return framed(*super().resolved(setting, model))

    @property
    def sense(self) -> int:
        return -1

    def size(self, value: float) -> float:
        return abs(value)

    def bound(self, model: Any) -> float:
        return float(model.objective_ * (1 + model.duality_gap_))

    def judge(self, setting: Setting, model: Any) -> judges.FarPairs:
        raise NotImplementedError

    def may_refuse(self, setting: Setting, error: NearfarError) -> bool:
        data = setting.data
        if "all pairs of different classes are of equal points" in str(error):
            same = live_squares(data) == 0
            return bool(same[data.y[:, None] != data.y].all())
        if "problem is unbounded" in str(error):
            near = live_squares(data)[data.y[:, None] == data.y].sum()
            judge = self.judge(setting, None)
            ridge = judge.shrinkage + judge.ridge
            return bool(ridge * near == 0) and _near_miss_far(data)
        return super().may_refuse(setting, error)

    def lengths(self, setting: Setting, model: Any) -> Lengths:
        return Lengths.under(model.components_, judges.differences(setting.data.exact))

    def trace(self, setting: Setting, model: Any) -> Judged:  # noqa: ARG002
        L = model.components_
        value = float((L.astype(judges.Wide) ** 2).sum())
        return Judged(value, judges.ROUNDINGS * float(np.finfo(L.dtype).eps) * value)

    def judged(self, setting: Setting, model: Any) -> Judged:
        return self.judge(setting, model).judged(self.lengths(setting, model))  # type: ignore[attr-defined]

    def excess(self, setting: Setting, model: Any) -> float:
        judge = self.judge(setting, model)
        near = judge.near_sum(self.lengths(setting, model), self.trace(setting, model))
        excess = max(0.0, near.value - judge.limit - near.rounding) / judge.limit
        return max(excess, self.lack(setting, model) if judge.shrinkage else 0.0)

    def lack(self, setting: Setting, model: Any) -> float:
        """By which share the metric is below its floor."""
        floor = self.judge(setting, model).floor
        return judges.lack_of_floor(model.components_[:, setting.data.live], floor)

    def starts(self, setting: Setting, model: Any) -> dict[str, float]:
        judge = self.judge(setting, model)
        near = judge.before[judge.pairs[0]].sum()
        if near == 0:
            return {}
        worth = judge.at_best_multiple(judge.before, judge.directions)  # type: ignore[attr-defined]
        return {"the longest multiple of the identity": worth}

    def optimum(self, setting: Setting, model: Any) -> float | None:
        points, unit = orthonormal(setting.data.X)
        judge = replace(self.judge(setting, model), before=squares_of(setting.data) / unit**2)
        return judge.optimum(points) if judge.is_steady(points) else None  # type: ignore[attr-defined]


def _near_miss_far(data: Data) -> bool:
    """Whether far pairs differ in a direction in which near pairs do not, or hardly."""
    X = data.exact
    size = np.abs(X - X[0]).max(axis=0)
    X = ((X - X[0]) / np.where(size > 0, size, 1)).astype(np.float64)
    same = data.y[:, None] == data.y
    differences = X[:, None] - X
    _, values, directions = np.linalg.svd(differences[same], full_matrices=False)
    known = directions[values > SPAN[0] * values[0]] if values[0] > 0 else directions[:0]
    far = differences[~same]
    rest = far - far @ known.T @ known
    return bool((np.linalg.norm(rest, axis=1) > SPAN[1] * np.linalg.norm(far, axis=1)).any())


class _MMC(_PairLearner):
    def parameters(self) -> st.SearchStrategy[Parameters]:
        return st.fixed_dictionaries({"shrinkage": st.sampled_from([0.05, 0.0, 0.7, "auto"])})

    def build(self, setting: Setting, tol: float) -> Any:
        return MMC(**setting.parameters, tol=tol)

    def judge(self, setting: Setting, model: Any) -> judges.FarPairs:  # noqa: ARG002
        data, rho = setting.data, setting.parameters["shrinkage"]
        return judges.SumOfFar(data.y, live_squares(data), max(1, int(data.live.sum())), rho)


class _DMLEig(_PairLearner):
    def may_refuse(self, setting: Setting, error: NearfarError) -> bool:
        if "are below the range of float64" in str(error):
            judge = self.judge(setting, None)
            return bool(judge.before[judge.pairs[1]].min() < 1e-290 * judge.total)
        return super().may_refuse(setting, error)

    def parameters(self) -> st.SearchStrategy[Parameters]:
        return st.fixed_dictionaries({"shrinkage": st.sampled_from([0.0, 0.05, 0.7, "auto"])})

    def build(self, setting: Setting, tol: float) -> Any:
        return DMLEig(**setting.parameters, tol=tol)

    def judge(self, setting: Setting, model: Any) -> judges.FarPairs:  # noqa: ARG002
        data, rho = setting.data, setting.parameters["shrinkage"]
        d, ridge = max(1, int(data.live.sum())), 0.0 if rho else WELL_POSED
        return judges.ClosestFar(data.y, live_squares(data), d, rho, data.X.shape[1], ridge)

    def with_dead_column(self, setting: Setting) -> float:
        d = setting.data.X.shape[1]  # the limit of the sum over near pairs
        return (d + 1) / d


# -- the maps in feature space ---------------------------------------------------------------------


def kernel_matrix(setting: Setting) -> Any:
    """k(x_i, x_j), for the linear kernel about the mean, (n, n)."""
    X = setting.data.exact
    X = X - X.mean(axis=0)
    if setting.parameters["kernel"] == "linear":
        return X @ X.T
    return np.exp(-rbf_exponents(setting))


def rbf_exponents(setting: Setting) -> Any:
    """γ‖W(x_i − x_j)‖², (n, n), with γ = 0.3 / (variance of Wx), or without W 1 / variance."""
    differences, W = judges.differences(setting.data.exact), setting.parameters.get("inside")
    share = 1.0 if W is None else 0.3
    squares = ((differences if W is None else differences @ W.T) ** 2).sum(-1)
    variance = squares.sum() / (2 * len(squares) ** 2)
    return share * squares / variance if variance > 0 else squares


def feature_squares(setting: Setting) -> Any:
    """Squared distances in feature space, (n, n), exactly zero for equal points."""
    if setting.parameters["kernel"] == "linear":
        return squares_of(setting.data)
    return -2 * np.expm1(-rbf_exponents(setting))


def feature_lengths(setting: Setting, model: Any) -> Lengths:
    """Learned distances of the map ``dual_coef_`` of kernel values."""
    K = kernel_matrix(setting)
    sizes = np.abs(K)[:, None] + np.abs(K)[None]
    if setting.parameters["kernel"] == "linear":  # of centred points, whose rounding is in there
        sizes = sizes + np.sqrt(np.abs(np.diag(K)).max() * np.abs(np.diag(K)))
    return Lengths.under(model.dual_coef_, judges.differences(K), sizes)


def feature_trace(setting: Setting, model: Any) -> Judged:
    """The trace of the metric in feature space; rows of ``dual_coef_`` sum to zero.

    The learner knows kernel values, and with them each product that is summed up, to ε.
    """
    C, K = model.dual_coef_.astype(judges.Wide), kernel_matrix(setting)
    C = C - C.mean(axis=1, keepdims=True)
    sizes = float(((np.abs(C) @ np.abs(K)) * np.abs(C)).sum())
    rounding = judges.ROUNDINGS * float(np.finfo(model.dual_coef_.dtype).eps) * sizes
    return Judged(float(((C @ K) * C).sum()), rounding)


def lack_of_feature_floor(setting: Setting, model: Any, floor: Any) -> float:
    """By which share the metric is below φI in the directions that kernel values resolve."""
    values = model.eigenvalues_
    if len(values) == 0 or not is_resolved(setting):
        return 0.0
    C, K = model.dual_coef_.astype(judges.Wide), kernel_matrix(setting)
    C = C - C.mean(axis=1, keepdims=True)
    if len(C) < len(values):
        return 1.0
    least = np.linalg.eigvalsh(((C @ K @ C.T) / floor).astype(np.float64))[-len(values)]
    rounding = judges.ROUNDINGS * np.finfo(float).eps * len(K) * values.max() / values.min()
    return max(0.0, 1 - float(least) - float(rounding))


def is_resolved(setting: Setting) -> bool:
    """Whether kernel values in float64 tell the points apart that differ."""
    squares = feature_squares(setting)
    return bool((squares[squares > 0] > 1e-6 * squares.max(initial=0)).all())


def feature_points(setting: Setting) -> np.ndarray:
    """Coordinates along orthonormal directions in feature space, (n, r)."""
    K = kernel_matrix(setting).astype(np.float64)
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-10 * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])


class _OfKernelValues:
    """A learner that sees points through kernel values in float64 alone.

    k(x, x) − 2 k(x, z) + k(z, z) errs by some ε max |k|. Points that are nearer to each other are
    one to the learner, or not, as the rounding of the order of rows has it, and what it proves is
    of these.
    """

    def resolved(self, setting: Setting, model: Any) -> tuple[Setting, Any]:
        """Also with the distance inside an RBF kernel that "auto" chose."""
        found, model = super().resolved(setting, model)  # type: ignore[misc]
        W = getattr(model, "kernel_components_", None)
        return replace(found, parameters=found.parameters | {"inside": W}), model

    def keeps(self, setting: Setting, relation: str) -> bool:
        return is_resolved(setting) and super().keeps(setting, relation)  # type: ignore[misc]


KERNELS = st.sampled_from(["linear", "rbf"])


class _KernelLMNN(_OfKernelValues, _OfAllNeighbours):
    def parameters(self) -> st.SearchStrategy[Parameters]:
        found = st.tuples(super().parameters(), KERNELS)
        return found.map(lambda pair: pair[0] | {"kernel": pair[1]})

    def setting(self, data: Data, parameters: Parameters) -> Setting:
        squares = feature_squares(Setting(data, parameters))
        edges, tied = judges.nearest_of_class(squares, data.y, parameters["n_neighbors"])
        level = 1e-9 * squares.max()  # what rounding of kernel values may hide
        tied |= bool(((squares > 0) & (squares < level)).any())
        chosen = parameters["kernel"] == "rbf" and parameters["shrinkage"] == "auto"
        if not (tied or chosen):  # by labels: another distance, with other neighbours
            return Setting(data, parameters, tuple(edges))
        parameters = parameters | {"n_neighbors": len(data.y)}
        return Setting(data, parameters, tuple(judges.all_of_class(data.y)))

    def build(self, setting: Setting, tol: float) -> Any:
        return KernelLMNN(**setting.parameters, tol=tol)

    def judge(self, setting: Setting, model: Any) -> judges.LargeMargin:
        return judges.LargeMargin(
            setting.data.y,
            list(setting.edges),
            setting.parameters["push_weight"],
            feature_squares(setting),
            setting.parameters["shrinkage"],
            max(1, len(model.eigenvalues_)),
        )

    def judged(self, setting: Setting, model: Any) -> Judged:
        lengths, trace = feature_lengths(setting, model), feature_trace(setting, model)
        return self.judge(setting, model).judged(lengths, [trace])

    def excess(self, setting: Setting, model: Any) -> float:
        floor = self.judge(setting, model).floor
        return lack_of_feature_floor(setting, model, floor) if floor else 0.0

    def starts(self, setting: Setting, model: Any) -> dict[str, float]:
        return super().starts(setting, model) if is_resolved(setting) else {}

    def optimum(self, setting: Setting, model: Any) -> float | None:
        points, judge = feature_points(setting), self.judge(setting, model)
        if points.shape[1] > 5 or (judge.floor and points.shape[1] != len(model.eigenvalues_)):
            return None
        return judge.optimum(points, 1.0)


class _KernelMCML(_OfKernelValues, Learner):
    def parameters(self) -> st.SearchStrategy[Parameters]:
        return st.fixed_dictionaries(
            {"kernel": KERNELS, "shrinkage": st.sampled_from([0.3, 0.9, "auto"])}
        )

    def build(self, setting: Setting, tol: float) -> Any:
        return KernelMCML(**setting.parameters, tol=tol)

    def judge(self, setting: Setting, model: Any) -> judges.Collapse:
        rho, rank = setting.parameters["shrinkage"], len(model.eigenvalues_)
        squares = feature_squares(setting)
        return judges.Collapse.shrunk(setting.data.y, squares, rho, rank, floored=False)

    def judged(self, setting: Setting, model: Any) -> Judged:
        lengths = feature_lengths(setting, model)
        return self.judge(setting, model).judged(lengths, feature_trace(setting, model).value)

    def starts(self, setting: Setting, model: Any) -> dict[str, float]:
        judge = self.judge(setting, model)
        found = {"zero": judge.at_zero()}
        if setting.data.spread > 0 and is_resolved(setting):
            rank = len(model.eigenvalues_)
            worth = judge.at_best_multiple(feature_squares(setting), rank)
            found["the best multiple of the kernel's"] = worth
        return found

    def optimum(self, setting: Setting, model: Any) -> float | None:
        points = feature_points(setting)
        return self.judge(setting, model).optimum(points) if points.shape[1] <= 5 else None

    def rescaled(self, setting: Setting, scale: float) -> float:  # noqa: ARG002
        return 1.0 if setting.parameters["kernel"] == "rbf" else np.nan


class _KernelMMC(_OfKernelValues, _PairLearner):
    def parameters(self) -> st.SearchStrategy[Parameters]:
        return st.fixed_dictionaries(
            {"kernel": KERNELS, "shrinkage": st.sampled_from([0.1, 0.001, 0.7, "auto"])}
        )

    def build(self, setting: Setting, tol: float) -> Any:
        return KernelMMC(**setting.parameters, tol=tol)

    def judge(self, setting: Setting, model: Any) -> judges.FarPairs:
        y, rho = setting.data.y, setting.parameters["shrinkage"]
        rank = max(1, len(model.eigenvalues_)) if model is not None else 1
        return judges.SumOfFar(y, feature_squares(setting), rank, rho)

    def lack(self, setting: Setting, model: Any) -> float:
        return lack_of_feature_floor(setting, model, self.judge(setting, model).floor)

    def lengths(self, setting: Setting, model: Any) -> Lengths:
        return feature_lengths(setting, model)

    def trace(self, setting: Setting, model: Any) -> Judged:
        return feature_trace(setting, model)

    def starts(self, setting: Setting, model: Any) -> dict[str, float]:
        return super().starts(setting, model) if is_resolved(setting) else {}

    def optimum(self, setting: Setting, model: Any) -> float | None:
        points = feature_points(setting)
        if points.shape[1] != len(model.eigenvalues_) or points.shape[1] > 5:
            return None
        judge = self.judge(setting, model)
        return judge.optimum(points) if judge.is_steady(points) else None  # type: ignore[attr-defined]


# -- without labels, and in closed form ------------------------------------------------------------


class _RCA(Learner):
    def parameters(self) -> st.SearchStrategy[Parameters]:
        return st.fixed_dictionaries({"shrinkage": st.sampled_from([0.0, 0.05, 0.7, "auto"])})

    def build(self, setting: Setting, tol: float) -> Any:  # noqa: ARG002
        return RCA(**setting.parameters)

    def may_refuse(self, setting: Setting, error: NearfarError) -> bool:
        data, text = setting.data, str(error)
        sizes = np.unique(data.y, return_counts=True)[1]
        if "needs a chunklet of two or more points" in text:
            return bool(sizes.max() == 1)
        if "points that differ within a chunklet" in text:
            same = data.y[:, None] == data.y
            return bool((live_squares(data)[same] == 0).all())  # a dead feature has no weight
        if "shrinkage=0 needs points that differ within chunklets" in text:
            return setting.parameters["shrinkage"] == 0 and _near_miss_far(data)
        return super().may_refuse(setting, error)

    def judge(self, setting: Setting) -> judges.Chunklets:
        data, rho = setting.data, setting.parameters["shrinkage"]
        return judges.Chunklets(data.X[:, data.live], data.y, rho)

    def judged(self, setting: Setting, model: Any) -> Judged:
        live = setting.data.live
        assert not model.components_[:, ~live].any(), "a dead feature has weight"
        L = model.components_[:, live]
        return self.judge(setting).judged(L[np.abs(L).max(axis=1) > 0])

    def starts(self, setting: Setting, model: Any) -> dict[str, float]:  # noqa: ARG002
        return {}

    def optimum(self, setting: Setting, model: Any) -> float | None:
        if len(model.components_) < setting.data.live.sum():  # of the directions of the points
            return None
        return self.judge(setting).optimum()

    def rounded_gap(self, setting: Setting, model: Any) -> float:
        return self.judged(setting, model).rounding / self.size(model.objective_)

    def rescaled(self, setting: Setting, scale: float) -> float:  # noqa: ARG002
        return np.nan  # N log det adds to it


class _MVU(Learner):
    @property
    def sense(self) -> int:
        return -1

    def size(self, value: float) -> float:
        return abs(value)

    def bound(self, model: Any) -> float:
        return float(model.objective_ / max(1 - model.duality_gap_, 1e-300))

    def parameters(self) -> st.SearchStrategy[Parameters]:
        return st.fixed_dictionaries(
            {
                "constraints": st.sampled_from(["shrink", "equal", "slack", "exact"]),
                "n_neighbors": st.integers(2, 4),
                "angles": st.booleans(),
                "on_disconnected": st.sampled_from(["link", "separate", "error"]),
            }
        )

    def build(self, setting: Setting, tol: float) -> Any:
        return MVU(**setting.parameters, slack_weight=0.9999, random_state=0, tol=tol)

    def arguments(self, setting: Setting) -> tuple[Any, ...]:  # noqa: ARG002
        return ()

    def may_refuse(self, setting: Setting, error: NearfarError) -> bool:
        if "needs points that differ" in str(error):
            return setting.data.spread == 0
        if "different points" in str(error):
            return len(np.unique(setting.data.X, axis=0)) <= setting.parameters["n_neighbors"]
        if "lengths must not be so different" in str(error):
            squares = squares_of(setting.data)
            return bool(squares[squares > 0].min() < DIFFERENT**2 * squares.max())
        if "distances must be at least" in str(error):
            lengths = pdist(setting.data.X.astype(np.float64), "chebyshev")
            return bool(lengths[lengths > 0].min() < SHORTEST * lengths.max())
        if "connected neighbourhood graph" in str(error):
            return setting.parameters["on_disconnected"] == "error"
        if re.search(
            r"longest distance must lie between|so that (they|distances) can be squared", str(error)
        ):
            return not 1 / SQUARED < setting.data.spread < SQUARED
        return super().may_refuse(setting, error)

    def _distinct(self, setting: Setting, model: Any) -> tuple[np.ndarray, judges.Unfolding]:
        """K of different points, and its judge: lengths are those of the points themselves."""
        graph, squares = model.graph_, squares_of(setting.data).astype(np.float64)
        joined = np.eye(len(squares), dtype=bool) | (squares == 0)
        places = joined.argmax(axis=1)
        firsts, codes = np.unique(places, return_inverse=True)
        ends = np.sort(np.column_stack([codes[graph.heads], codes[graph.tails]]), axis=1)
        edges = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
        D = squares[firsts[edges[:, 0]], firsts[edges[:, 1]]]
        kind = setting.parameters["constraints"]
        thickness = model.thickness_ if kind == "equal" else 0.0
        K = model.kernel_[np.ix_(firsts, firsts)]
        return K, judges.Unfolding(edges, D, kind, model.slack_weight, thickness)

    def judged(self, setting: Setting, model: Any) -> Judged:
        K, judge = self._distinct(setting, model)
        return judge.judged(K)

    def excess(self, setting: Setting, model: Any) -> float:
        K, judge = self._distinct(setting, model)
        least = np.linalg.eigvalsh(K)[0] / max(np.trace(K), 1e-300)
        return max(judge.violation(K) - model.duality_gap_, -float(least) - 1e-12, 0.0)

    def starts(self, setting: Setting, model: Any) -> dict[str, float]:
        if setting.parameters["on_disconnected"] != "error":
            return {}
        K, _ = self._distinct(setting, model)
        X = np.unique(setting.data.exact.astype(np.float64), axis=0)
        return {"the points themselves": float(((X - X.mean(axis=0)) ** 2).sum())} if len(K) else {}

    def optimum(self, setting: Setting, model: Any) -> float | None:
        K, judge = self._distinct(setting, model)
        if model.component_labels_.any() or len(K) > 9 or len(judge.edges) == 0:
            return None
        if judge.constraints not in ("shrink", "slack"):  # equal lengths may leave no interior
            return None
        return judge.optimum(len(K), float(judge.squares.mean()))

    def keeps(self, setting: Setting, relation: str) -> bool:
        """Where neighbours are equally far, the graph depends on the order of the points."""
        if relation == "units":
            return True
        X = np.unique(setting.data.exact.astype(np.float64), axis=0)
        squares = squares_of(Data(X, np.zeros(len(X))))
        k = setting.parameters["n_neighbors"]
        tied = judges.nearest_of_class(squares, np.zeros(len(X)), k)[1]
        return setting.parameters["on_disconnected"] == "error" and not tied and len(X) > k

    def rescaled(self, setting: Setting, scale: float) -> float:  # noqa: ARG002
        return scale**2


LEARNERS = [
    _LMNN("LMNN"),
    _MultiMetricLMNN("MultiMetricLMNN"),
    _KernelLMNN("KernelLMNN"),
    _MCML("MCML"),
    _KernelMCML("KernelMCML"),
    _MMC("MMC"),
    _KernelMMC("KernelMMC"),
    _DMLEig("DMLEig"),
    _RCA("RCA"),
    _MVU("MVU"),
]


def check_ending(learner: Learner, setting: Setting, fit: Fit, tol: float) -> None:
    """Finite numbers and a true status: converged to the tolerance, or said otherwise."""
    model = fit.model
    for name in ("components_", "dual_coef_", "embedding_", "kernel_"):
        if hasattr(model, name):
            assert np.isfinite(getattr(model, name)).all(), f"{name} is not finite"
    assert np.isfinite(model.objective_), f"objective_ is {model.objective_}"
    assert model.status_ in STATUSES, model.status_
    gap = model.duality_gap_
    assert gap is not None
    assert gap >= 0, f"duality_gap_ is {gap}"
    if model.status_ == "converged":
        tol = max(tol, learner.rounded_gap(setting, model))
        assert gap <= tol, f"converged with a gap of {gap:g} above tol={tol:g}"
    else:
        told = any(isinstance(warning, ConvergenceWarning) for warning in fit.warnings)
        assert told, f"status {model.status_} without a ConvergenceWarning"
