"""Maximum variance unfolding as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import DataWarning, InvalidInputError, warn
from nearfar.estimators._parameters import check_choice, check_number
from nearfar.estimators._proofs import Proof
from nearfar.estimators._unfolding import Task, Unfolded, Unfolding
from nearfar.graphs import NeighborhoodGraph
from nearfar.kernels import Array, check_memory, gram_kernels_for, kernels_for
from nearfar.problems.mvu import IllConditionedError, MVUProgram, State, UnboundedError
from nearfar.solvers import Iterate, Status
from nearfar.solvers.interior_point import interior_point

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

CONSTRAINTS = ("equal", "exact", "shrink", "slack")
CONTRADICTION = 1e-3  # change of a length that equal lengths would need, above which none exist
KEPT = 1e-6  # change of a squared length that is none
ROUNDINGS = 4.0  # of inner products in a squared length
NAMED = 5  # edges that a message names
FLAT = 0.01  # share of the variance that may be lost without a word
SPECTRUM = 20  # eigenvalues among which the gap is looked for
SOLVED = (Status.CONVERGED, Status.STALLED)  # as far as it can be


class MVU(Unfolding):
    """Maximum variance unfolding: as far apart as the distances of neighbours allow.

    Finds the Gram matrix K of largest trace, the variance, among those that keep the lengths of all
    edges of a neighbourhood graph: a semidefinite program, solved to a certified gap. Its leading
    eigenvectors are the embedding. See ``docs/algorithms/mvu.md`` for the mathematics.

    Parameters
    ----------
    n_components : int, default=2
        Dimensions of the embedding. The program itself does not depend on it.
    n_neighbors : int, default=4
        Neighbours of each point in the graph. Too few do not hold it together, too many lock it up.
    angles : bool, default=True
        Whether the distances among the neighbours of a point are kept, too.
    constraints : {"equal", "exact", "shrink", "slack"}, default="equal"
        Lengths stay equal, may shrink but not grow ("shrink"), or may change at a price ("slack").
        A graph in which more points are tied to each other than their dimension needs, such as the
        five of ``n_neighbors=4`` in three dimensions, is stiff: unfolding would have to change some
        length, however little. There "equal" gives each point a small dimension of its own, which
        makes lengths up to 1 % longer and lets the graph bend (see ``thickness_``), and "exact"
        does not.
    slack_weight : float, default=0.99
        The thesis' omega between 0 and 1, the weight of the changes of squared lengths against the
        variance; for "slack" only.
    variance : {"max", "min"}, default="max"
        Whether the variance is made largest or, for comparison, smallest.
    metric : {"euclidean", "precomputed", "kernel"}, default="euclidean"
        Whether X holds points, distances or a kernel matrix.
    on_disconnected : {"link", "error", "separate"}, default="link"
        What to do with a graph of several components: link them by edges between near points,
        with a warning that names their sizes; raise an error; or unfold each by itself about the
        origin.
    tol : float, default=1e-6
        Certified relative gap at which to stop.
    max_iter : int, default=100
        Largest number of iterations.
    max_seconds : float or None, default=None
        Largest time in seconds.
    memory_limit : float or None, default=None
        Gigabytes that may be used; None is all memory of the machine or the device. A problem that
        needs more is refused before any work.
    random_state : int, RandomState instance or None, default=None
        Draws the links of ``on_disconnected="link"``.

    Attributes
    ----------
    embedding_ : ndarray or torch.Tensor of shape (n_samples, n_components)
        The leading eigenvectors of the solution, scaled by the roots of their eigenvalues.
    eigenvalues_ : ndarray of shape (n_points,)
        Of the solution, largest first: one for each different point, of the largest component.
    intrinsic_dimension_ : int
        The number of eigenvalues before the widest gap in the spectrum.
    kernel_ : ndarray or torch.Tensor of shape (n_samples, n_samples)
        The solution K, in float64; copies of a point have the same rows, and it is centred over
        different points.
    locked_up_ : bool
        Whether nothing was unfolded: the variance is that of the points themselves. False where
        `fit` saw no points, but distances or a kernel.
    dimacs_ : dict
        The DIMACS error measures of the solution, "err1" to "err6"; of the largest component.
        Changes of lengths that are allowed or paid for are no errors.
    max_distortion_ : float
        Largest relative change of a squared length.
    thickness_ : float
        Of the points: 0, or for a stiff graph 0.01. The squared length of an edge has then grown
        by this times the squares of the shortest edges at both its ends, and it is these lengths
        that were kept, and that ``duality_gap_`` and ``dimacs_`` are about.
    objective_ : float
        The variance, the trace of K over different points; for "slack" less the price of the
        changes, both as in ``trace − omega / (1 − omega) Σ |change|``; negative for
        ``variance="min"``.
    duality_gap_ : float or None
        How far the objective can be from the optimum, relative to the bound by the dual (or to the
        mean squared length if that is larger): its distance from the bound, and what lengths that
        are not quite kept may have gained. At least the largest relative change of a squared length
        that was to be kept. None if an interrupted fit did not reach all components.
    proof_ : dict or None
        What proves ``duality_gap_``, for `nearfar.verify`: the edges with their dual
        weights y, and the thickness with which each was kept.
    status_ : str
        Why the fit ended: "converged", "max_iter", "max_seconds", "stalled", "stopped" (by a
        callback) or "interrupted".
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        For each iteration: n_iter, seconds, objective, bound, violation, mu (mean
        complementary product), duality_gap (certified), residual (the same), component.
    graph_ : NeighborhoodGraph
        The graph.
    component_labels_ : ndarray of shape (n_samples,)
        The component of each point.
    X_fit_ : ndarray, torch.Tensor or None
        The points, if there are any.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    Notes
    -----
    With n points and m edges an iteration takes O(m³ + n³) time, and 8 m² + 24 m n + 100 n² bytes
    (16 m² on a GPU); some 15 to 25 iterations are needed, twice as many where the graph turns out
    to be stiff. With 4 neighbours m is about 4 n. Everything is computed in float64, where the data
    is. Points that coincide are unfolded as one.

    References
    ----------
    Weinberger, Metric learning with convex optimization, PhD thesis, University of Pennsylvania,
    2007, chapter 3; Weinberger & Saul, Unsupervised learning of image manifolds by semidefinite
    programming, IJCV 70 (2006).

    Examples
    --------
    >>> from sklearn.datasets import make_s_curve
    >>> from nearfar import MVU
    >>> X, _ = make_s_curve(150, noise=0.05, random_state=0)
    >>> mvu = MVU(constraints="slack", slack_weight=0.999).fit(X)
    >>> mvu.status_, mvu.embedding_.shape
    ('converged', (150, 2))
    """

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int | None = 4,
        *,
        angles: bool = True,
        constraints: str = "equal",
        slack_weight: float = 0.99,
        variance: str = "max",
        metric: str = "euclidean",
        on_disconnected: str = "link",
        tol: float = 1e-6,
        max_iter: int = 100,
        max_seconds: float | None = None,
        memory_limit: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.angles = angles
        self.constraints = constraints
        self.slack_weight = slack_weight
        self.variance = variance
        self.metric = metric
        self.on_disconnected = on_disconnected
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.memory_limit = memory_limit
        self.random_state = random_state

    # -- before ------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("constraints", self.constraints, CONSTRAINTS)
        check_number("slack_weight", self.slack_weight, Real, 0, 1, open_ends=True)
        check_choice("variance", self.variance, ("max", "min"))
        if self.variance == "min" and self.constraints == "shrink":
            raise InvalidInputError(
                "the least variance of lengths that may shrink is zero, with all points in one"
                " place. Set constraints='equal' or variance='max'."
            )
        if self.memory_limit is not None:
            check_number("memory_limit", self.memory_limit, Real, 0, None, open_ends=True)

    def _check_memory(self, graph: NeighborhoodGraph, gram: Any, reference: Array) -> None:
        n, m = graph.n_nodes, graph.n_edges
        check_memory(
            8 * gram.SCHUR_COPIES * m**2 + 24 * m * n + 100 * n**2,
            f"exact unfolding of {n} points and {m} edges",
            "Use VariationalMVU or LandmarkMVU, which take memory in proportion to the number of"
            " points, lower n_neighbors",
            reference,
        )

    def _program(self, graph: NeighborhoodGraph, reference: Array) -> MVUProgram:
        """The program of a connected graph."""
        equal = self.constraints == "equal"
        try:
            program = MVUProgram.build(
                graph.heads,
                graph.tails,
                graph.lengths**2,
                graph.n_nodes,
                reference,
                "equal" if self.constraints == "exact" else self.constraints,
                float(self.slack_weight),
                maximise=self.variance == "max",
                may_relax=equal,
            )
            return program.thicker() if equal and graph.is_stiff() else program
        except IllConditionedError:
            raise _too_different(graph) from None
        except UnboundedError as error:
            raise InvalidInputError(
                f"with slack_weight={self.slack_weight:g} the variance grows without bound; on this"
                f" graph it must be above {error.least:.6g}. Set it nearer to 1."
            ) from None

    # -- the program -------------------------------------------------------------------------

    def _unfold(self, graph: NeighborhoodGraph, task: Task) -> Unfolded:
        kernels = kernels_for(task.reference)
        reference = kernels.double(task.reference[:0])
        gram = gram_kernels_for(reference)
        self._check_memory(graph, gram, reference)
        if self.constraints != "slack" and _least_rounding(graph) > CONTRADICTION:
            raise _too_different(graph)
        program = self._program(graph, reference)

        def embedding(iterate: Iterate) -> Array:
            return _leading(gram, _kernel(iterate), self.n_components)[1]

        try:
            solution = task.run(interior_point(program), embedding)
        except IllConditionedError:
            raise _too_different(graph) from None
        iterate, status = solution.iterate, solution.status
        state, program = iterate.state, iterate.certificate
        values, vectors = _leading(gram, _kernel(iterate), graph.n_nodes)
        objective, gap, dimacs = _judged(program, state, values)
        if status in SOLVED:
            self._refuse_contradictions(program, state, graph)
            status = Status.CONVERGED if gap <= self.tol else Status.STALLED
        return Unfolded(
            embedding=vectors[:, : self.n_components],
            eigenvalues=np.maximum(values, 0.0),
            max_distortion=float(abs(program.changes(state.K)).max()),
            objective=objective,
            duality_gap=gap,
            status=status,
            details={
                "thickness": program.thickness,
                "K": _kernel(iterate),
                "dimacs": dimacs,
                "points": graph.points,
                "violation": program.violation(state),
                "rounding": float(_rounding(program, state).max()),
                "dual": self._dual_point(program, state),
            },
            gap_unit=max(program.mean_square, abs(program.bound(state))),
        )

    @staticmethod
    def _dual_point(program: MVUProgram, state: State) -> tuple[Index, Matrix]:
        """Heads and tails (m, 2) of the edges, and y in the units of the data with δ (m, 2)."""
        to_host = kernels_for(state.y).to_host
        y = program.scale * to_host(state.y)
        edges = np.stack([to_host(program.heads), to_host(program.tails)], axis=1)
        return edges, np.stack([y, np.full(len(y), program.thickness)], axis=1)

    def _refuse_contradictions(
        self, program: MVUProgram, state: State, graph: NeighborhoodGraph
    ) -> None:
        """Refuse equal lengths that no points have: some change at any price."""
        lengths = kernels_for(state.y).to_host(program.lengths(state.K))
        equal = self.constraints in ("equal", "exact")
        if not equal or np.abs(lengths - 1).max() <= CONTRADICTION:
            return
        worst = np.argsort(-np.abs(lengths - 1))
        worst = worst[np.abs(lengths[worst] - 1) > CONTRADICTION]
        if (_rounding(program, state)[worst] > CONTRADICTION).any():
            raise _too_different(graph)
        edges = ", ".join(
            f"{graph.heads[e]}-{graph.tails[e]} ({lengths[e] ** 0.5 - 1:+.1%})"
            for e in worst[:NAMED]
        )
        raise InvalidInputError(
            f"no points have these distances: {len(worst)} of {graph.n_edges} edges would have to"
            f" change, most of all {edges}. Set constraints='slack' or 'shrink', or correct them.",
            np.unique([graph.heads[worst], graph.tails[worst]]),
        )

    # -- after -------------------------------------------------------------------------------

    def _store_details(self, parts: list[tuple[Index, Unfolded]]) -> None:
        spectrum = parts[0][1].eigenvalues
        self.intrinsic_dimension_ = _dimension(spectrum)
        details, done = parts[0][1].details, parts[0][1].status in SOLVED
        self.dimacs_ = details.get("dimacs", {})
        self.thickness_ = max(found.details.get("thickness", 0.0) for _, found in parts)
        self.locked_up_ = (
            done
            and self.variance == "max"
            and _is_locked_up(details.get("points"), spectrum, self.n_components)
        )
        if self.locked_up_:
            warn(
                "MVU has locked up: the variance is that of the points themselves, so that nothing"
                " was unfolded. Lower n_neighbors, set angles=False, or constraints='slack'.",
                DataWarning,
            )
        self._warn_of_changes([found.details for _, found in parts if found.status in SOLVED])
        self.kernel_ = self._joint_kernel(parts)
        self.proof_ = self._joint_proof(parts)

    def _joint_proof(self, parts: list[tuple[Index, Unfolded]]) -> Proof:
        """The dual points of all components, by the rows of the points."""
        graph = self.graph_
        places = graph.merged()[0] if not graph.lengths.all() else np.arange(graph.n_nodes)
        first = np.unique(places, return_index=True)[1]
        found = [(rows, part.details["dual"]) for rows, part in parts if "dual" in part.details]
        edges = [first[rows[ends]] for rows, (ends, _) in found]
        values = [weights for _, (_, weights) in found]
        return {
            "edges": np.concatenate([np.empty((0, 2), dtype=np.intp), *edges]).astype(np.int32),
            "weights": np.concatenate([np.empty((0, 2)), *values]),
        }

    def _warn_of_changes(self, parts: list[dict[str, Any]]) -> None:
        """Warn of lengths that should have been kept and were not, and name the likely cause."""
        worst = max(parts, key=lambda details: details.get("violation", 0.0), default={})
        violation = worst.get("violation", 0.0)
        if violation <= max(self.tol, KEPT):
            return
        cause = "the graph is too stiff, or they contradict each other. Lower n_neighbors"
        if worst["rounding"] >= violation:
            cause = "they are so different that rounding changes the short ones. Leave out outliers"
        warn(
            f"squared lengths could be kept only to {violation:.0e} of themselves: {cause}, or set"
            " constraints='slack'.",
            DataWarning,
        )

    def _joint_kernel(self, parts: list[tuple[Index, Unfolded]]) -> Array:
        """K of all samples: components side by side, copies beside their originals."""
        graph = self.graph_
        places = graph.merged()[0] if not graph.lengths.all() else np.arange(graph.n_nodes)
        blocks = [(rows, found.details.get("K")) for rows, found in parts]
        whole = np.zeros((int(places.max()) + 1,) * 2)
        for rows, K in blocks:
            if K is not None:
                whole[np.ix_(rows, rows)] = kernels_for(K).to_host(K)
        whole = whole[np.ix_(places, places)]
        first = next((K for _, K in blocks if K is not None), whole)
        return kernels_for(first).like(whole, first)


def _leading(gram: Any, K: Array, count: int) -> tuple[Matrix, Array]:
    """The largest eigenvalues of K, on the host, and its vectors scaled by their roots."""
    values, vectors = gram.eigh(K)
    values, vectors = values[-count:], vectors[:, -count:]
    columns = vectors * values.clip(0, None) ** 0.5
    order = kernels_for(K).index(np.arange(len(values))[::-1].copy(), K)
    return kernels_for(K).to_host(values[order]), columns[:, order]


def _kernel(iterate: Iterate) -> Array:
    """K of an iterate, in the units of the data."""
    return iterate.certificate.scale * iterate.state.K


def _judged(
    program: MVUProgram, state: State, values: Matrix
) -> tuple[float, float, dict[str, float]]:
    """Objective, gap and DIMACS measures of a point, from the matrices themselves.

    ``values`` are the eigenvalues of K.
    """
    kernels, gram, unit = kernels_for(state.K), program.gram, program.scale
    n = program.n
    objective = program.variance(state) - (program.paid(state) if program.priced else 0.0)
    S = program.dual_slack(state.y)
    least = float(gram.eigh(S)[0][:2].min())  # 1 is an eigenvector of eigenvalue 0
    bound, below = program.bound(state), max(0.0, -float(values.min()) / unit)
    inside = replace(state, K=state.K + below * (gram.eye(n, state.K) - 1 / n))  # positive again
    gap = program.gap(inside) + (n - 1) * below * unit / max(program.mean_square, abs(bound))
    if least < 0:  # by rounding: y is scaled back into the cone
        moved = abs(bound / (1 + program.sign * least) - bound)
        gap += moved / max(program.mean_square, abs(bound))
    given = kernels.to_host(program.squares)
    lack = program.forbidden(kernels.to_host(program.lengths(state.K)) - 1) * given
    size, total = 1 + float(given.max()), 1 + (abs(objective) + abs(bound)) / unit
    measures = {
        "err1": float(np.linalg.norm(lack)) / size,
        "err2": below / size,
        "err3": 0.0,  # S is computed from y
        "err4": max(0.0, -least) / 2,
        "err5": (bound - objective) / unit / total,
        "err6": float((state.K * S).sum()) / total,
    }
    return objective, gap, measures


def _least_rounding(graph: NeighborhoodGraph) -> float:
    """What rounding K changes in the shortest squared length at least, relative to it.

    All nodes are some longest / n from their mean or more, which K is about.
    """
    ratio = float(graph.lengths.max() / graph.lengths.min()) / graph.n_nodes
    return float(np.finfo(float).eps) * ratio**2


def _rounding(program: MVUProgram, state: State) -> Matrix:
    """What rounding K changes in squared lengths, relative to them; (m,) on the host."""
    diagonal = state.K.diagonal()
    sizes = (diagonal[program.heads] + diagonal[program.tails]) / program.squares
    found: Matrix = ROUNDINGS * np.finfo(float).eps * kernels_for(sizes).to_host(sizes)
    return found


def _too_different(graph: NeighborhoodGraph) -> InvalidInputError:
    """The error that names the shortest and the longest edge."""
    short, long = int(graph.lengths.argmin()), int(graph.lengths.argmax())
    (i, j), (k, m) = ((int(graph.heads[e]), int(graph.tails[e])) for e in (short, long))
    return InvalidInputError(
        "lengths must not be so different that rounding a matrix of inner products changes the"
        f" short ones; edge {i}-{j} is {graph.lengths[short]:.2g} long and edge {k}-{m}"
        f" {graph.lengths[long]:.2g}. Leave out outliers, make points equal that are nearly so, or"
        " set constraints='slack'.",
        [i, j, k, m],
    )


def _dimension(spectrum: Matrix) -> int:
    """How many eigenvalues stand before the widest gap, relative, in the spectrum."""
    leading = spectrum[: SPECTRUM + 1]
    if len(leading) < 2 or leading[0] <= 0:
        return 1
    floor = 1e-9 * leading[0]
    ratios = np.maximum(leading[:-1], floor) / np.maximum(leading[1:], floor)
    return int(ratios.argmax()) + 1


def _is_locked_up(points: Any, spectrum: Matrix, n_components: int) -> bool:
    """Whether the variance is that of the points, although they are not flat."""
    if points is None:
        return False
    kernels = kernels_for(points)
    X = np.asarray(kernels.to_host(points), dtype=np.float64)
    before = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    lost = before[n_components:].sum() / max(before.sum(), np.finfo(float).tiny)
    return bool(lost > FLAT and spectrum.sum() < (1 + FLAT) * before.sum())
