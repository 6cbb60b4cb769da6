"""Shared by MCML, KernelMCML and NCA: input, start, checkpoint and the run of a descent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_random_state

from nearfar.blocks import Blocks, is_dask
from nearfar.blocks.collections import on_this_machine
from nearfar.blocks.rows import with_known_rows
from nearfar.errors import InvalidInputError
from nearfar.estimators._blocks import (
    block_fingerprint,
    block_keys,
    block_prior,
    central_row,
    framed_blocks,
    live_blocks,
    scaled_blocks,
    validated_dask,
)
from nearfar.estimators._input import (
    drop_rows_without_weight,
    masses_of,
    validated_labels,
    validated_points,
    validated_weights,
    warn_of_coinciding,
)
from nearfar.estimators._shrinkage import (
    AUTO,
    AUTO_OF_PRIOR,
    Prior,
    better_scale,
    chosen_prior,
    chosen_shrinkage,
    framed,
    scale_sample,
    shrinkage_for,
)
from nearfar.estimators._start import (
    check_range,
    projection,
    robust_centre,
    sparse_projection,
    without_dead_features,
)
from nearfar.estimators._training import Proof, Training
from nearfar.files import fingerprint
from nearfar.kernels import Array, kernels_for, take_rows, to_host
from nearfar.linalg import pad_or_trim_rows
from nearfar.problems.nca_sparse import SparseNCAProblem
from nearfar.problems.soft_neighbors import SoftNeighborsProblem, varying
from nearfar.problems.soft_neighbors_blocks import ROWS
from nearfar.problems.sparse_points import SparsePoints
from nearfar.solvers import Iterate, Solution, Status
from nearfar.solvers.checkpoint import Checkpoint
from nearfar.solvers.quasi_newton import Memory
from nearfar.supervision import ClassOrder
from nearfar.supervision.labels import check_class_pairs
from nearfar.supervision.pairs import equal_points, n_coinciding
from nearfar.validation import check_choice

Matrix = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

INITS = ("auto", "identity", "pca", "lda")
LEAST_DISTANCE = 1e-12  # squared; below it, rounding hides what a descent could gain
VOTERS = 3  # neighbours whose error chooses the scale of features
REMAINS = 10  # a step of a descent gains about a tenth of what remains to be gained


# -- input and start -------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelledPoints:
    """What a fit learns from: the rows of positive weight, in the order of X."""

    X: Array
    labels: ClassOrder
    weights: Matrix | None  # (n,) of these rows; None if all are 1
    row_weights: Matrix | None  # of all rows of X, with zeros

    @property
    def masses(self) -> Matrix | None:
        """The weights of the points sorted by class, scaled to a mean of 1."""
        return masses_of(self.weights, self.labels.order)

    @property
    def proof(self) -> Proof:
        """What a proof holds of the weights."""
        return {} if self.row_weights is None else {"sample_weight": self.row_weights}


def validated_labelled_points(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    accept_dask: bool = False,
    **sparse_input: Any,
) -> LabelledPoints:
    """Points and labels, with two points of one class and two classes at least.

    A Dask array stays lazy; its labels and weights are computed. ``sparse_input`` are options of
    `validated_points`.
    """
    if accept_dask and is_dask(X):
        X = with_known_rows(validated_dask(estimator, X, reset=True))
        y, sample_weight = on_this_machine(y), on_this_machine(sample_weight)
    else:
        X = validated_points(estimator, X, reset=True, **sparse_input)
    labels = validated_labels(estimator, X, y)
    row_weights = validated_weights(estimator, X.shape[0], sample_weight, labels)
    X, labels, weights = drop_rows_without_weight(estimator, X, labels, row_weights)
    check_class_pairs(labels, type(estimator).__name__)
    if is_dask(X):  # equal points are counted where the rows are, by `points_to_shrink`
        return LabelledPoints(X, labels, weights, row_weights)
    differ = equal_points(X).any() if sparse.issparse(X) else bool((X[:1] != X).any())
    if differ:  # otherwise another warning says that all points are equal
        warn_of_coinciding(n_coinciding(X, labels.codes))
    return LabelledPoints(X, labels, weights, row_weights)


def points_to_shrink(estimator: Any, X: Array, labels: ClassOrder) -> Array:
    """The points sorted by class, in the units of the distance that ``shrinkage`` keeps.

    Sets ``shrinkage_`` and ``feature_scale_``. Features that hardly vary are zero. Sparse points
    keep their units. Rows of a Dask array are blocks, kept on the cluster.
    """
    if is_dask(X):
        return _blocks_to_shrink(estimator, X, labels)
    points, scale = take_rows(without_dead_features(X), labels.order), None
    if sparse.issparse(X):
        check_range(points)
        n_varying = int((SparsePoints(points, 1).variances > 0).sum())
    else:
        if estimator.shrinkage == "auto":
            robust_centre(points)  # refuses what leaves the range of float64
            scale = better_scale(points, labels.codes[labels.order], VOTERS)
        n_varying = int(varying(points).sum())
    estimator.shrinkage_ = chosen_shrinkage(estimator.shrinkage, points[:, :n_varying])
    estimator.feature_scale_ = None if scale is None else to_host(scale)
    return points if scale is None else points * scale


def _blocks_to_shrink(estimator: Any, X: Any, labels: ClassOrder) -> Blocks:
    """As `points_to_shrink`; choices are made from the same sample of rows as in memory."""
    blocks, varies = live_blocks(X, labels.order, ROWS)
    codes, scale = labels.codes[labels.order], None
    if varies.any():
        warn_of_coinciding(n_coinciding(blocks, codes))
    if estimator.shrinkage == "auto":
        central_row(blocks)  # refuses what leaves the range of float64
        rows = scale_sample(block_keys(blocks), codes)
        scale = better_scale(to_host(blocks.take(rows)), codes[rows], VOTERS)
    estimator.shrinkage_ = shrinkage_for(estimator.shrinkage, len(codes), int(varies.sum()))
    estimator.feature_scale_ = scale
    return blocks if scale is None else scaled_blocks(blocks, scale)


def framed_points(
    estimator: Any, X: Array, labels: ClassOrder, rows: int = AUTO_OF_PRIOR
) -> tuple[Array | Blocks, Prior | None]:
    """The points sorted by class, in coordinates of the distance that ``shrinkage`` keeps.

    "auto" keeps that of `chosen_prior`, which is returned, and is one half at so many ``rows`` for
    each feature; a number keeps that of the inputs. Sets
    ``shrinkage_`` and ``prior_components_``. Features that hardly vary are left out, or zero. Rows
    of a Dask array are blocks, kept on the cluster.
    """
    codes, points, prior = labels.codes[labels.order], X, None
    if is_dask(X):
        points, varies = live_blocks(X, labels.order, ROWS)
        if varies.any():
            warn_of_coinciding(n_coinciding(points, codes))
        if estimator.shrinkage == "auto":
            central_row(points)  # refuses what leaves the range of float64
            prior = block_prior(points, codes, VOTERS, varies)
    else:
        points = take_rows(without_dead_features(X), labels.order)
        varies = varying(points)
        if estimator.shrinkage == "auto":
            robust_centre(points)  # refuses what leaves the range of float64
            prior = chosen_prior(points, codes, VOTERS, varies)
    rows = AUTO if prior is None else rows
    estimator.shrinkage_ = shrinkage_for(
        estimator.shrinkage, len(codes), int(np.count_nonzero(varies)), rows
    )
    estimator.prior_components_ = None if prior is None else prior[0]
    if prior is None:
        return points, None
    frame = framed_blocks if isinstance(points, Blocks) else framed
    return frame(points, prior[0]), prior


def check_init(init: Any, *others: str) -> None:
    """Raise if init is an unknown word; an array is validated when the start is computed."""
    if isinstance(init, str) or init is None:
        check_choice("init", init, (*INITS, *others), or_else=" or an array")


def named_start(
    problem: SoftNeighborsProblem,
    points: Array,
    labels: ClassOrder,
    init: str,
    rows: int | None,
    random_state: Any = None,
) -> Matrix:
    """The factor that the word ``init`` names, scaled to the length of "auto"."""
    guess = problem.first_guess(rows)
    if init == "auto":
        return guess
    d = points.shape[1]
    components = np.eye(rows or d, d)
    if init == "random":
        components = check_random_state(random_state).standard_normal((rows or d, d))
    elif init != "identity":
        components = start_projection(problem, points, labels, init, rows or d)
    L = problem.factor(components)
    length = problem.pull_of(L)
    return L * (problem.pull_of(guess) / length) ** 0.5 if length > 0 else L


def start_projection(
    problem: SoftNeighborsProblem, points: Array, labels: ClassOrder, init: str, rows: int
) -> Matrix:
    """The leading directions of PCA or LDA, also of sparse points."""
    if isinstance(problem, SparseNCAProblem):
        return sparse_projection(problem.source, labels, init, rows)
    return projection(points, labels, init, rows)


def start_from(estimator: Any, problem: SoftNeighborsProblem, components: Matrix) -> Matrix:
    """The factor of a map of the points that was given, or that is left from the last fit."""
    if estimator.warm_start and hasattr(estimator, "components_"):
        components = problem.above_floor(components)
    return problem.factor(components)


def check_start(problem: SoftNeighborsProblem, L: Matrix) -> None:
    """Raise if a factor maps all points to almost the same image: no descent could undo that."""
    distance = problem.mean_distance(L)
    if distance < LEAST_DISTANCE:
        raise InvalidInputError(
            f"the initial map leaves points at a mean squared distance of {distance:.0e}, too"
            " small to separate them. Scale it up, or use another init."
        )


# -- the descent -----------------------------------------------------------------------------------


def open_checkpoint(path: Any, points: Array, *settings: Any) -> Checkpoint | None:
    """The checkpoint of a fit to these points, sorted by class, with these settings."""
    if path is None:
        return None
    if isinstance(points, Blocks):
        return Checkpoint(path, fingerprint(block_fingerprint(points), *settings))
    rows = points if sparse.issparse(points) else to_host(points)
    return Checkpoint(path, fingerprint(rows, *settings))


def run_descent(
    training: Training,
    problem: SoftNeighborsProblem,
    start: Matrix,
    descent: Callable[[Matrix, Memory | None], Iterator[Iterate]],
    attributes: Callable[[Matrix], dict[str, Any]],
) -> Solution:
    """Run a descent from a factor, or from where the checkpoint has it.

    ``descent`` makes the iterates, from a factor and the memory of an earlier descent.
    ``attributes`` are the fitted attributes of a map on the features.
    """
    memory = None
    if training.saved is not None:
        start, memory = _unpacked(problem, training.saved[0])

    def save(iterate: Iterate) -> None:
        training.save(_packed(problem, iterate), {})

    solution = training.run(
        descent(start, memory),
        lambda iterate: attributes(problem.returned(iterate.point)),
        start=Iterate(start, np.inf),
        save=save,
    )
    if solution.status is not Status.CONVERGED and solution.history:
        save(solution.iterate)
    # Drop the memory of the descent, which may be larger than the data.
    return replace(solution, iterate=replace(solution.iterate, state=None))


def _packed(problem: SoftNeighborsProblem, iterate: Iterate) -> Arrays:
    """An iterate as arrays from which `_unpacked` continues."""
    arrays = {"components": problem.components(iterate.point)}
    if isinstance(iterate.state, Memory):
        memory, basis = iterate.state, problem.coordinates_key
        arrays |= {"basis": basis, "factor": iterate.point, "gain": np.array(memory.gain)}
        arrays |= {"steps": memory.steps, "changes": memory.changes}
    return arrays


def _unpacked(problem: SoftNeighborsProblem, arrays: Arrays) -> tuple[Matrix, Memory | None]:
    """The factor and the memory of a packed iterate.

    On another machine the coordinates of the problem may differ, by rounding or more. Then only the
    map on the features is used, and the descent takes another path from there.
    """
    if "basis" not in arrays or not np.array_equal(arrays["basis"], problem.coordinates_key):
        return problem.factor(arrays["components"]), None
    memory = Memory(arrays["steps"], arrays["changes"], float(arrays["gain"]))
    return arrays["factor"], memory


def expected_gain(gain: float, value: float, least: float) -> float:
    """An estimate of what a descent may still gain, relative to the objective.

    ``gain`` is that of its next step, and ``least`` a lower bound on all values.
    """
    return min(REMAINS * gain, abs(value - least)) / max(abs(value), 1.0)


# -- the answer ------------------------------------------------------------------------------------


def as_components(
    components: Matrix, rows: int | None, X: Array, scale: Matrix | None = None
) -> Array:
    """A map of so many rows, if they are given, in the dtype and on the device of X.

    ``scale`` is what features were multiplied by, by powers of two, before they were mapped.
    """
    found = kernels_for(X).like(pad_or_trim_rows(components, rows), X)
    return found if scale is None else found * kernels_for(X).like(scale, X)
