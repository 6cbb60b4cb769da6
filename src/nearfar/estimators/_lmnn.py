"""What a fit of LMNN learns from: its input, rows, problems and passes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.blocks import Blocks, Streamed, in_blocks, is_dask
from nearfar.blocks.cells import cell_order
from nearfar.blocks.neighbors import nearest_in_class
from nearfar.blocks.rows import with_known_rows
from nearfar.errors import InvalidInputError
from nearfar.estimators._blocks import (
    block_prior,
    central_row,
    live_blocks,
    refuse_dask,
    validated_dask,
    validated_streamed,
)
from nearfar.estimators._held_out import votes_under
from nearfar.estimators._input import (
    drop_rows_without_weight,
    masses_of,
    validated_labels,
    validated_points,
    validated_weights,
)
from nearfar.estimators._large_margin import (
    Descent,
    Split,
    check_margin_parameters,
    given_edges,
    targets_under,
)
from nearfar.estimators._shrinkage import Prior, check_shrinkage, chosen_prior, warn_if_worse
from nearfar.estimators._start import (
    central_point,
    check_range,
    given_start,
    learned_rows,
    robust_centre,
    without_dead_features,
)
from nearfar.estimators._training import Arrays, Proof, Saved
from nearfar.estimators._tuples import validated_triplets
from nearfar.estimators._unlabeled import with_spread_labels
from nearfar.kernels import Array, gram_kernels_for, kernels_for, take_rows, to_host
from nearfar.limits import fit_clock
from nearfar.problems.lmnn import LMNNProblem
from nearfar.problems.lmnn_blocks import LMNNBlocks
from nearfar.problems.lmnn_given import GivenLMNNProblem
from nearfar.problems.lmnn_sampled import Draws, SampledLMNNProblem
from nearfar.problems.lmnn_sparse import SparseLMNNProblem
from nearfar.problems.sparse_points import SparsePoints
from nearfar.solvers import Status
from nearfar.supervision import ClassOrder, class_order, vote
from nearfar.supervision.labels import check_class_sizes
from nearfar.supervision.pairs import equal_points, warn_of_far_and_equal
from nearfar.validation import check_choice, check_number

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

INITS = ("auto", "identity", "pca", "lda")
NEED_LABELS = {
    "n_passes": 1,
    "validation_fraction": None,
    "checkpoint": None,
    "class_weight": None,
    "unlabeled_weight": None,
}  # unless these
PASS_DONE = (Status.CONVERGED, Status.EARLY_STOPPED, Status.STALLED)  # another one may follow
MATRICES = ("components", "target_components")
PROOF = "before_proof_"  # begins the names of the arrays of a proof in a checkpoint


@dataclass(frozen=True)
class Rows:
    """Points to learn from, sorted by class, with what else is known of them."""

    X: Array  # all rows, as they were validated
    points: Array  # those to learn from
    centre: Array | None  # None of sparse points
    labels: ClassOrder  # of the points
    order: Index  # the row of X of each point
    weights: Matrix | None = None  # of all rows of X, with zeros; None if all are 1
    targets: tuple[Array, Array] | None = None  # edges to target neighbours that the user gave
    held_out: tuple[Array, Index] | None = None  # points to validate on, and their class numbers
    prior: Prior | None = None  # the distance that a shrinkage keeps; None for that of the inputs
    triplets: Index | None = None  # given instead of labels, all points being of one class then

    @property
    def codes(self) -> Index:
        """The class numbers of the points."""
        return self.labels.codes[self.labels.order]

    @property
    def masses(self) -> Matrix | None:
        """The weights of the points, scaled to a mean of 1."""
        return masses_of(self.weights, self.order)

    @property
    def proof(self) -> Proof:
        """What a proof holds of the weights."""
        return {} if self.weights is None else {"sample_weight": self.weights}

    @property
    def table(self) -> Array | None:
        """X, if it is a dense array in memory."""
        return None if sparse.issparse(self.X) or in_blocks(self.X) else self.X

    def held_out_votes(self, components: Matrix, n_neighbors: int) -> Index:
        """The class numbers that the nearest points under a map give to the held-out rows."""
        assert self.held_out is not None
        return votes_under(components, self.points, self.codes, self.held_out[0], n_neighbors)

    def held_out_error(self, components: Matrix, n_neighbors: int) -> float:
        """The share of the held-out rows that these votes misclassify."""
        assert self.held_out is not None
        return float(np.mean(self.held_out_votes(components, n_neighbors) != self.held_out[1]))

    def warn_if_worse(self, components: Matrix, n_neighbors: int) -> None:
        """Warn if the held-out rows, where there are any, are classified better by the inputs."""
        if self.held_out is None:
            return
        new, truth = self.held_out
        near = kernels_for(new).nearest(new, self.points, min(n_neighbors, len(self.codes)))[0]
        warn_if_worse(
            self.held_out_votes(components, n_neighbors),
            vote(self.codes[to_host(near)], int(self.codes.max()) + 1),
            truth,
            n_rows=len(self.codes),
            n_features=self.points.shape[1],
            n_classes=len(self.labels.sizes),
        )


def rows_of_points(
    X: Array,
    counted: Array,
    split: Split,
    weights: Matrix | None,
    targets: tuple[Array, Array] | None,
    n_neighbors: int | None,
) -> Rows:
    """Labelled points; ``counted`` are the rows of X that have a weight, which ``split`` divides.

    So many ``n_neighbors`` of training rows choose the distance to keep; None keeps the inputs'.
    """
    order = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
    if in_blocks(X):
        return _rows_of_blocks(X, counted, split, order, weights, targets, n_neighbors)
    live = without_dead_features(counted)
    points, held_out, prior = take_rows(live, split.order), None, None
    is_sparse = sparse.issparse(points)
    if is_sparse:
        check_range(points)
    elif n_neighbors is not None:
        robust_centre(points)  # refuses what leaves the range of float64
        prior = chosen_prior(points, split.codes, n_neighbors)
    if split.held_out is not None:
        held_out = take_rows(live, split.held_out), split.held_out_codes
    return Rows(
        X,
        points,
        None if is_sparse else central_point(points),
        split.labels,
        order[split.order],
        weights,
        targets,
        held_out,
        prior,
    )


def _rows_of_blocks(
    X: Any,
    counted: Any,
    split: Split,
    order: Index,
    weights: Matrix | None,
    targets: tuple[Array, Array] | None,
    n_neighbors: int | None,
) -> Rows:
    """As `rows_of_points`, of rows in blocks, which are sorted by class where they are.

    Unless target neighbours are given, near points of a class come into the same block.
    """
    blocks, varies = live_blocks(counted, split.order)
    centre, prior = central_row(blocks), None
    if n_neighbors is not None:
        prior = block_prior(blocks, split.codes, n_neighbors, varies)
    labels, order = split.labels, order[split.order]
    if targets is None and varies.any():
        cells = cell_order(blocks, split.codes, None if prior is None else prior[0])
        blocks, order = blocks.reordered(cells), order[cells]
        labels = replace(labels, order=labels.order[cells])
    return Rows(X, blocks, centre, labels, order, weights, targets, None, prior)


# -- input -----------------------------------------------------------------------------------------


def validated_rows_of_points(
    estimator: Any, X: Any, y: Any, targets: Any, sample_weight: Any
) -> Rows:
    """Validate points with labels, and sort by class those to learn from."""
    X = _validated_points(estimator, X)
    reference = X.reference if isinstance(X, Streamed) else X
    gram_kernels_for(reference).begin_peak(reference)
    if estimator.unlabeled_weight is not None:
        refuse_dask(estimator, X)
        y, sample_weight = with_spread_labels(estimator, X, y, sample_weight, targets)
    all_labels = validated_labels(estimator, X, y)
    weights = validated_weights(estimator, X.shape[0], sample_weight, all_labels)
    targets = None if targets is None else to_host(targets)
    counted, labels, _ = drop_rows_without_weight(estimator, X, all_labels, weights)
    _check_parameters(estimator)
    _check_parameters_of_points(estimator, X, labels, targets)

    edges = None if targets is None else given_edges(targets, all_labels, X, weights)
    fraction, name = estimator.validation_fraction, type(estimator).__name__
    split = Split.of(labels, fraction, estimator.random_state, name)
    voters = estimator.n_neighbors if estimator.shrinkage == "auto" else None
    return rows_of_points(X, counted, split, weights, edges, voters)


def validated_rows_of_triplets(
    estimator: Any, X: Any, y: Any, targets: Any, sample_weight: Any
) -> Rows:
    """Validate triplets, all of which are at hand, so that there is nothing to choose."""
    points, triplets = validated_triplets(estimator, X, y, reset=True)
    _check_parameters(estimator)
    _check_no_labels_needed(estimator, target_neighbors=targets, sample_weight=sample_weight)
    points = without_dead_features(points)
    triplets = _with_different_ends(points, triplets, type(estimator).__name__)
    alike = class_order(np.zeros(len(points), dtype=np.intp), type(estimator).__name__)
    order = np.arange(len(points))
    return Rows(points, points, central_point(points), alike, order, triplets=triplets)


def _validated_points(estimator: Any, X: Any) -> Array:
    """Points, which may be sparse if a map of few rows is learned."""
    if is_dask(X):
        return with_known_rows(validated_dask(estimator, X, reset=True))
    if isinstance(X, Streamed):
        return validated_streamed(estimator, X, reset=True)
    count: Any = estimator.n_components
    rows = int(count) if isinstance(count, Integral) else None
    few = sparse.issparse(X) and learned_rows(rows, estimator.reduce, X.shape[1]) is not None
    return validated_points(
        estimator,
        X,
        reset=True,
        accept_sparse=few,
        to_accept="A map of few rows is learned from sparse points: set n_components, and leave"
        " reduce='learn'. ",
    )


def _check_parameters(estimator: Any) -> None:
    """Validate the parameters by themselves."""
    check_margin_parameters(estimator)
    n_components, n_features = estimator.n_components, estimator.n_features_in_
    if n_components is not None:
        check_number("n_components", n_components, Integral, 1, n_features)
    check_shrinkage(estimator.shrinkage)
    check_choice("reduce", estimator.reduce, ("learn", "project"))
    check_number("n_passes", estimator.n_passes, Integral, 1, None)
    check_choice("certificate", estimator.certificate, ("all", "sample"))
    rows = learned_rows(n_components, estimator.reduce, n_features)
    if estimator.certificate == "sample" and rows is not None:
        raise InvalidInputError(
            f"certificate='sample' needs a full metric; n_components={n_components} learns a map"
            " of few rows, for which no gap is known. Set reduce='project', or leave"
            " certificate='all'."
        )
    if isinstance(estimator.init, str) or estimator.init is None:
        check_choice("init", estimator.init, INITS, or_else=" or an array")
    given_start(estimator, rows)  # raises if it does not fit


def _check_parameters_of_points(
    estimator: Any, X: Any, labels: ClassOrder, targets: NDArray[Any] | None
) -> None:
    """Validate what the parameters ask of the points and their labels."""
    held_out = estimator.validation_fraction is not None
    if in_blocks(X) and held_out:
        raise InvalidInputError(
            "validation_fraction needs rows in memory, not in blocks. Leave it None, and"
            " raise shrinkage or tol against overfitting, or fit to a sample of the rows."
        )
    if in_blocks(X) and estimator.certificate == "sample":
        raise InvalidInputError(
            "certificate='sample' needs rows in memory, not in blocks. Leave certificate='all'."
        )
    if targets is not None and held_out:
        raise InvalidInputError(
            "target_neighbors and validation_fraction cannot be used together: held-out rows"
            " would be missing from the neighbours. Leave one of them out."
        )
    chooses = targets is None or estimator.n_passes > 1
    n_neighbors = estimator.n_neighbors if chooses else None
    check_class_sizes(labels, n_neighbors, type(estimator).__name__)


def _check_no_labels_needed(estimator: Any, **arguments: Any) -> None:
    """Raise if a parameter, or an argument of ``fit`` that is not None, needs class labels."""
    needing = {
        name: getattr(estimator, name)
        for name, neutral in NEED_LABELS.items()
        if getattr(estimator, name) != neutral
    }
    if isinstance(estimator.init, str) and estimator.init == "lda":
        needing["init"] = estimator.init
    shown = {name: repr(value) for name, value in needing.items()}
    shown |= {name: "…" for name, value in arguments.items() if value is not None}
    for name, value in shown.items():
        raise InvalidInputError(
            f"{name}={value} needs points with labels, but X holds triplets. Leave it out."
        )
    if estimator.certificate != "all":
        raise InvalidInputError(
            "certificate='sample' is for labelled points; given triplets are all at hand."
            " Leave certificate='all'."
        )


def _with_different_ends(points: Array, triplets: Index, name: str) -> Index:
    """The triplets whose first and last points differ; of others a warning, or an error if all."""
    same = equal_points(points)[triplets]
    equal = same[:, 0] == same[:, 2]
    if equal.all():
        raise InvalidInputError(
            f"{name} needs triplets whose first and last points differ; they are equal in all"
            f" {len(triplets)}. Check the row numbers and the features."
        )
    warn_of_far_and_equal(np.flatnonzero(equal), "triplet")
    kept: Index = triplets[~equal]
    return kept


# -- problems --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Margin:
    """The numbers that define the problem."""

    n_neighbors: int
    push_weight: float
    shrinkage: float
    tol: float
    learned_rows: int | None  # of a map that is learned with a fixed rank; None for all metrics


def build_descent(
    rows: Rows, margin: Margin, previous: Matrix | None = None, draws: Draws | None = None
) -> Descent:
    """The problem of a pass: its target neighbours, and the points whitened by these.

    ``previous`` is the map of the previous pass, which chooses the target neighbours; without it
    they are those that the user gave, or the nearest by the distance that is kept. With ``draws``,
    certificates are from samples of the rows.
    """
    points, labels = rows.points, rows.labels
    edges, chosen_by = rows.targets, None if rows.prior is None else rows.prior[0]
    if previous is not None:
        edges, chosen_by = None, previous
    problem: LMNNProblem
    if rows.triplets is not None:
        problem = GivenLMNNProblem.of(
            points,
            rows.centre,
            rows.triplets,
            margin.push_weight,
            margin.shrinkage,
            floored=margin.learned_rows is None,
        )
    elif isinstance(points, Blocks):
        centre, codes = np.asarray(rows.centre), rows.codes
        if edges is None:
            edges = nearest_in_class(points, codes, margin.n_neighbors, chosen_by, centre)
        problem = LMNNBlocks.of(
            points,
            centre,
            edges,
            codes,
            margin.push_weight,
            margin.shrinkage,
            floored=margin.learned_rows is None,
            prior=rows.prior,
            masses=rows.masses,
        )
    else:
        if edges is None:
            edges = targets_under(chosen_by, points, rows.centre, labels, margin.n_neighbors)
        if sparse.issparse(points):
            assert margin.learned_rows is not None
            source = SparsePoints(points, margin.learned_rows)
            settings = margin.push_weight, margin.shrinkage, rows.masses
            problem = SparseLMNNProblem.of(source, edges, labels.starts, *settings)
        else:
            problem = LMNNProblem.build(
                points,
                rows.centre,
                edges,
                labels.starts,
                margin.push_weight,
                margin.shrinkage,
                floored=margin.learned_rows is None,
                prior=rows.prior,
                masses=rows.masses,
            )
    if draws is not None:
        problem = SampledLMNNProblem.of(problem, draws, margin.tol)
    return Descent(problem, points, labels, margin.tol, margin.learned_rows)


# -- passes: what each leaves behind, which is kept, and checkpoints of them -----------------------


@dataclass(frozen=True)
class Pass:
    """What a pass leaves behind."""

    components: Matrix  # (rows, features), longest first
    target_components: Matrix | None  # the map that chose the targets; None for the inputs
    number: int
    status: Status
    objective: float | None  # None if there was no time to compute it
    duality_gap: float | None
    sampled_gap: float | None
    n_coinciding: int
    error: float  # on the held-out rows; infinite if there are none
    proof: Proof
    unrounded: float | None = None  # objective before the map was rounded, if it is known


@dataclass(frozen=True)
class Ending:
    """The pass that is kept, why there is no other, and what was not reached, in words."""

    kept: Pass
    status: Status
    unreached: str | None = None  # None if it is just the tolerance


def ending_after(
    done: Pass, previous: Pass | None, n_passes: int, tol: float, *, max_iter_reached: bool
) -> Ending | None:
    """How the fit ends with the pass that is done, or None if another one follows.

    Under validation the previous pass is the best so far, since the first that is not better is
    the last. So a checkpoint needs to hold no other.
    """
    better = previous is None or done.error < previous.error or np.isinf(done.error)
    kept = done if better or previous is None else previous
    if done.status not in PASS_DONE:
        here = f"in pass {done.number} of {n_passes}, before tol={tol:g}"
        return Ending(kept, done.status, here if n_passes > 1 else None)
    if not better or done.error == 0 or done.number == n_passes:
        return Ending(kept, kept.status)
    if max_iter_reached:
        return Ending(kept, Status.MAX_ITER, before_next(done, n_passes))
    if fit_clock().is_up:
        return Ending(kept, Status.MAX_SECONDS, before_next(done, n_passes))
    return None


def before_next(done: Pass, n_passes: int) -> str:
    """Where a fit stops that makes no further pass, in words."""
    return f"before pass {done.number + 1} of {n_passes}"


def packed(previous: Pass | None) -> Saved:
    """A pass as arrays and plain values."""
    if previous is None:
        return {}, {}
    values = {field.name: getattr(previous, field.name) for field in fields(previous)}
    matrices = {f"before_{name}": values.pop(name) for name in MATRICES}
    arrays = {name: matrix for name, matrix in matrices.items() if matrix is not None}
    proof: Proof = values.pop("proof")
    return arrays | {PROOF + name: array for name, array in proof.items()}, {"before": values}


def unpacked(arrays: Arrays, values: dict[str, Any]) -> Pass | None:
    """The previous pass, from all that a checkpoint holds."""
    if "before" not in values:
        return None
    parts: dict[str, Any] = dict(values["before"])
    parts["status"] = Status(parts["status"])
    parts |= {name: arrays.get(f"before_{name}") for name in MATRICES}
    proof = {name.removeprefix(PROOF): arrays[name] for name in arrays if name.startswith(PROOF)}
    return Pass(**parts, proof=proof)
