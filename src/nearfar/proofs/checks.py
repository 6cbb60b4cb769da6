"""For each learner: the problem that a model says it solved, read from table, model and proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from nearfar.errors import InvalidInputError
from nearfar.proofs import bounds, claims, sums
from nearfar.proofs.claims import Proof, Refuted, Space, points_of, tolerance
from nearfar.proofs.sums import Index, Matrix, Pairs

SOLVED = 1e-6  # relative excess of a constraint that is rounding
Weights = tuple[Matrix, Matrix, Matrix]
RIDGE = {"DMLEig": 1e-9}  # of shrinkage=0, which only makes the problem well-posed
OTHER = "the table is not the training table: "


@dataclass(frozen=True)
class Found:
    """What was recomputed; ``note`` is to be said with the gap."""

    objective: float
    bound: float | None  # None where there is no dual point
    note: str = ""
    maximises: bool = False
    own_gap: float | None = None  # where it is not the distance of objective and bound alone

    def gap(self, objective: float) -> float | None:
        """How far an objective is from the optimum at most, relative as ``duality_gap_`` is."""
        if self.bound is None or self.own_gap is not None:
            return self.own_gap
        if self.maximises:
            return max(self.bound / objective - 1, 0.0) if objective > 0 else np.inf
        return max((objective - self.bound) / max(abs(objective), 1.0), 0.0)


def no_variation(objective: float) -> Found:
    """All points are equal, and every metric is as good as any other."""
    return Found(objective, objective, ": all points are equal", own_gap=0.0)


def check_lmnn(model: Any, proof: Proof, X: Any, y: Any, given: Any) -> Found:
    """LMNN, KernelLMNN and MultiMetricLMNN."""
    X = points_of(X, model)
    codes = claims.codes_of(claims.learned_labels(model, y), len(X))
    weights = claims.weights_of(proof, len(X))
    rows = counted = np.flatnonzero(weights)
    mu = float(model.push_weight)
    if "rows" in proof:
        rows = claims.row_numbers({"rows": np.atleast_2d(proof["rows"])}, "rows", None, 0, len(X))[
            0
        ]
        if len(np.unique(rows)) < len(rows):
            raise Refuted("the proof is damaged: it names a row twice")
        if not weights[rows].all():
            raise Refuted("the proof is damaged: it names a row without weight")
    masses = claims.with_mean_one(weights[rows])
    space, n = Space.of(model, X, rows), len(rows)
    inputs, framed = space.points, space.maps
    prior = getattr(model, "prior_components_", None)
    if prior is not None:  # the program is about the points W x, the map about the inputs
        W = claims.finite_array({"prior": prior}, "prior", (None, X.shape[1]))
        framed = space.maps @ sums.right_inverse(W)
        space = Space(space.maps, space.points @ W.T, space.points)
    codes = codes[rows]
    if "targets" not in proof and not space.points.any():
        near = np.minimum(np.bincount(codes) - 1, int(model.n_neighbors))
        mass = np.bincount(codes, masses)
        return no_variation(float(mu * (mass * near * (mass.sum() - mass)).sum()))
    targets, images = (
        claims.row_numbers(proof, "targets", None, -1, n),
        space.images(),
    )
    own = np.asarray(getattr(model, "metric_of_", np.zeros(len(counted), dtype=np.intp)))
    known = own.shape == (len(counted),) and np.isin(own, np.arange(len(images))).all()
    if len(targets) != n or not known:
        raise Refuted(f"{OTHER}it has {len(X)} rows, the proof is about {len(targets)}")
    metric = own[np.searchsorted(counted, rows)]  # rows without weight have none
    if given is None:
        chose = getattr(model, "target_components_", None)
        where = inputs if chose is None else space.image(chose)
        noise = 0.0 if space.gram is None else n * sums.EPS * np.abs(where).max(initial=0.0)
        ties = tolerance(model), noise**2  # eigenvectors of a kernel matrix are rounded
        for row in _not_nearest(where, codes, targets, int(model.n_neighbors), ties):
            what = f"the target neighbours of row {rows[row]} are not the nearest of its class"
            raise Refuted(OTHER + what)
    elif not _same_targets(targets, claims.to_host(given), rows, len(X)):
        raise Refuted("the target neighbours of the proof are not those that were given")
    dual, proves = (np.empty((0, 3), dtype=np.intp), np.empty(0)), "triplets" in proof
    if proves:
        triplets = claims.row_numbers(proof, "triplets", 3, 0, n)
        dual = triplets, claims.finite_array(proof, "weights", (len(triplets),))
        _check_triplets(*dual, codes, targets)
    rho = float(getattr(model, "shrinkage_", 0.0))
    ridge, floor = sums.shrunk(space.points, masses, targets, rho, framed=prior is not None)
    if ridge and space.gram is not None:  # the map in the coordinates of the points
        framed = np.linalg.lstsq(space.points, images[0] - images[0].mean(axis=0))[0].T[None]
    if ridge and proves and getattr(model, "n_components", None) is None:  # else it is projected
        for L in framed:
            _check_floor(L, floor, tolerance(model))
    traces = (framed * framed).sum(axis=(1, 2))
    shares = _shares(metric, masses, targets, len(framed))
    claim = sums.Claim(masses, targets, dual, ridge * shares, floor, traces)
    objective, bound, least = bounds.lmnn(space.points, images, metric, codes, mu, claim)
    note = f" (dual point infeasible: smallest eigenvalue {least:.0e})" if least < -SOLVED else ""
    note += f", of the {n} rows that were learned from" if n < len(X) else ""
    return Found(objective, bound if proves else None, note)


def _shares(metric: Index, masses: Matrix, targets: Index, n_metrics: int) -> Matrix:
    """Of each metric the share of the edges that end at its points; that of one if of none."""
    heads, slot = np.nonzero(targets >= 0)
    if len(heads) == 0:
        return np.ones(n_metrics)
    tails, weights = metric[targets[heads, slot]], masses[heads]
    count = np.bincount(tails, minlength=n_metrics)
    shares = np.bincount(tails, weights, minlength=n_metrics) / weights.sum()
    return np.where(count > 0, shares, 1 / len(heads))


def _same_targets(targets: Index, given: Any, rows: Index, n: int) -> bool:
    """Whether targets, numbered among the rows, are those of a table of n rows between them."""
    if given.ndim != 2 or len(given) != n or given.dtype.kind not in "iu":
        return False
    if given.min(initial=-1) < -1 or given.max(initial=-1) >= n:
        return False
    place = np.full(n + 1, -1)  # the last is of -1: none
    place[rows] = np.arange(len(rows))
    return np.array_equal(_edge_codes(targets), _edge_codes(place[given[rows]]))


def _edge_codes(targets: Index) -> Index:
    """A number for each edge of a table of targets, ascending."""
    heads, slot = np.nonzero(targets >= 0)
    return np.sort(heads * len(targets) + targets[heads, slot])


def _check_floor(L: Matrix, floor: Matrix, share: float) -> None:
    """Refute a metric that is not above diag(floor)."""
    least = float(np.linalg.eigvalsh(L.T @ L - np.diag(floor))[0])
    if least < -share * float(np.linalg.norm(L) ** 2):
        raise Refuted(f"the metric is below its floor: smallest eigenvalue {least:.0e}")


def _not_nearest(
    T: Matrix, codes: Index, targets: Index, k: int, ties: tuple[float, float]
) -> Iterator[np.intp]:
    """Rows whose targets are not the k nearest of their class in T; of equals any will do."""
    for code in np.unique(codes):
        members = np.flatnonzero(codes == code)
        for part in sums.blocks(len(members), len(codes)):
            rows = members[part]
            chosen = np.zeros((len(rows), len(codes) + 1), dtype=bool)  # the last is of -1: none
            np.put_along_axis(chosen, targets[rows], True, axis=1)
            chosen[np.arange(len(rows)), rows] = False
            count, chosen = chosen[:, :-1].sum(axis=1), chosen[:, members]
            table = cdist(T[rows], T[members], "sqeuclidean")
            farthest = np.where(chosen, table, 0).max(axis=1)
            table[chosen | (rows[:, None] == members)] = np.inf
            wrong = farthest > table.min(axis=1) * (1 + ties[0]) + ties[1]
            wrong |= (count != min(k, len(members) - 1)) | (count != chosen.sum(axis=1))
            yield from rows[wrong]


def _check_triplets(triplets: Index, weights: Matrix, codes: Index, targets: Index) -> None:
    """Refute a dual point that is none of this problem."""
    n, (i, j, far) = len(codes), triplets.T
    if not ((weights >= 0) & (weights <= 1)).all():
        worst = weights[np.abs(weights - 0.5).argmax()]
        raise Refuted(f"dual point infeasible: a weight is {worst:.3g}, not between 0 and 1")
    if len(np.unique((i * n + j) * n + far)) < len(i):
        raise Refuted("dual point infeasible: a triplet occurs twice")
    if not (targets[i] == j[:, None]).any(axis=1).all() or (codes[i] == codes[far]).any():
        raise Refuted("dual point infeasible: a triplet is not of a target and an impostor")


def check_mcml(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """MCML and KernelMCML."""
    few = model.reduce == "learn" and model.n_components is not None
    floored = not hasattr(model, "dual_coef_") and (
        not few or model.n_components >= model.n_features_in_
    )
    space, points, codes, claim = _collapse(model, proof, X, y, floored=floored)
    if not points.any():
        return no_variation(bounds.mcml(points, codes, claim, points, [])[0])
    names, shape = ("components", "nearer"), (None, space.operand.shape[1])
    duals = [
        space.image(claims.finite_array(proof, name, shape)) for name in names if name in proof
    ]
    objective, bound = bounds.mcml(points, codes, claim, space.images()[0], duals)
    return Found(objective, bound if duals else None)


def check_nca(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """NCA, of which the objective alone can be checked: how many points get their class."""
    full = model.diagonal or model.n_components in (None, model.n_features_in_)
    space, _points, codes, claim = _collapse(model, proof, X, y, floored=full, nearest=sums.NEAREST)
    objective, m = -claim.ridge * claim.trace, claim.masses
    for rows, _D, p, _logs in sums.soft_neighbors(space.images()[0], m):
        objective += m[rows] @ ((codes[rows][:, None] == codes) * p).sum(axis=1)
    return Found(float(objective), None)


def _collapse(
    model: Any, proof: Proof, X: Any, y: Any, *, floored: bool, nearest: int | None = None
) -> tuple[Space, Matrix, Index, sums.Collapse]:
    """The space of MCML or NCA, its points in the units of the program, and the program."""
    X = points_of(X, model)
    codes, masses = claims.codes_of(y, len(X)), claims.masses_of(proof, len(X))
    rows = np.flatnonzero(masses)
    space, codes, masses = Space.of(model, X, rows), codes[rows], masses[rows]
    points, L, scale = space.points, space.maps[0], getattr(model, "feature_scale_", None)
    trace = space.trace()
    if scale is not None:  # the program is about scaled features, the map about the inputs
        scale = claims.finite_array({"scale": scale}, "scale", (X.shape[1],))
        points, L = points * scale, L / scale
        trace = float((L * L).sum())
    rho = float(getattr(model, "shrinkage_", 0.0))
    rank = len(model.eigenvalues_) if space.gram is not None else None
    claim = sums.Collapse.of(points, codes, masses, rho, trace, floored, rank, nearest)
    cut = hasattr(model, "reduce") and model.n_components is not None  # rows of the whole metric
    if claim.floor.any() and not cut:
        _check_floor(L, claim.floor, tolerance(model))
    return space, points, codes, claim


class PairProblem:
    """Near and far pairs (2, m), or classes: all pairs of one are near, and all others far."""

    def __init__(self, model: Any, proof: Proof, X: Any, y: Any) -> None:
        points, self.codes, near, far, self.note, weights = read_pairs(model, proof, X, y)
        rows = np.arange(len(points))
        self.masses, self.near_weights, self.far_weights = weights
        if self.codes is None and hasattr(model, "dual_coef_"):  # the points of pairs only
            rows = np.unique(np.concatenate([near, far]))
            near, far = np.searchsorted(rows, near), np.searchsorted(rows, far)
        self.near_pairs, self.far_pairs = near.T, far.T
        self.space = Space.of(model, points, rows)
        scale = getattr(model, "feature_scale_", None)
        if scale is not None:  # the program is about scaled features, the map about the inputs
            scale = claims.finite_array({"scale": scale}, "scale", (points.shape[1],))
            scaled = self.space.points * scale
            self.space = Space(self.space.maps / scale, scaled, scaled)
        self.points = self.space.points
        B = self.near(self.points)
        spread = total = float((B * B).sum())
        if self.space.squares is not None and model.rank is None:  # also along what is not in B
            total = self.near_total(self.space.squares)
        rho = float(model.shrinkage_)
        if not 0 <= rho < 1:
            raise Refuted(f"the shrinkage of the model is {rho:g}, not from 0 to below 1")
        live = sums.varying(self.points)
        ridge = (rho or RIDGE.get(type(model).__name__, 0.0)) / (1 - rho)
        share = ridge * total / max(int(np.count_nonzero(live)), 1)
        self.B = sums.with_ridge(B, share)  # BᵀB = S' of (3.1), H' of (4.1)
        self.Z = self.space.images()[0]
        size = float((self.near(self.Z) ** 2).sum()) + share * self.space.trace()
        rows_learned = getattr(model, "duality_gap_", None) is None
        kept = (1 - rho) * spread + rho * total
        root = np.sqrt(rho / kept) * live if rho and kept > 0 else np.zeros(len(live))
        self.limits = sums.Limits((1 - rho) * size, root * (not rows_learned))

    def check_floor(self, model: Any, d: float) -> None:
        """Refute a metric below φI, where d is the budget of near pairs."""
        if self.limits.root.any() and getattr(model, "n_components", None) is None:
            kept = np.sqrt(d) * self.points * self.limits.root
            if self.space.squares is None and len(kept) > kept.shape[1]:  # as much, on the span
                L = self.space.maps[0][:, self.limits.root > 0]
                above = L.T @ L - d * np.diag(self.limits.root[self.limits.root > 0] ** 2)
            else:  # between the points
                Z, kept = self.Z - self.Z.mean(axis=0), kept - kept.mean(axis=0)
                above = Z @ Z.T - kept @ kept.T
            least = float(np.linalg.eigvalsh(above)[0])
            if least < -tolerance(model) * max(float(np.trace(above)), 0.0):
                raise Refuted(f"the metric is below its floor: smallest eigenvalue {least:.0e}")

    def near(self, U: Matrix) -> Matrix:
        """Rows whose squares add up to the scatter of the near pairs."""
        if self.codes is None:
            rows = U[self.near_pairs[0]] - U[self.near_pairs[1]]
            return np.asarray(np.sqrt(self.near_weights)[:, None] * rows)
        rows, m = np.zeros_like(U), self.masses
        for code in np.unique(self.codes):
            mine = np.flatnonzero((self.codes == code) & (m > 0))
            if len(mine):
                about = U[mine] - np.average(U[mine], axis=0, weights=m[mine])
                rows[mine] = np.sqrt(m[mine].sum() * m[mine])[:, None] * about
        return rows

    def near_total(self, squares: Matrix) -> float:
        """The sum over the near pairs of a table (n, n)."""
        if self.codes is None:
            return float(self.near_weights @ squares[self.near_pairs[0], self.near_pairs[1]])
        same = np.where(self.codes[:, None] == self.codes, squares, 0.0)
        return float(self.masses @ same @ self.masses) / 2

    def far(self) -> Iterator[tuple[Pairs, Matrix]]:
        """The far pairs and their weights, in parts.

        Pairs of equal points, which no metric parts, and pairs without weight are left out.
        """
        if self.codes is None:
            yield (self.far_pairs[0], self.far_pairs[1]), self.far_weights
            return
        for rows in sums.blocks(len(self.codes), len(self.codes)):
            heads, tails = np.nonzero(self.codes[rows][:, None] < self.codes)
            weights = self.masses[rows[heads]] * self.masses[tails]
            apart = (sums.lengths(self.points, rows[heads], tails) > 0) & (weights > 0)
            yield (rows[heads][apart], tails[apart]), weights[apart]


def read_pairs(
    model: Any, proof: Proof, X: Any, y: Any
) -> tuple[Matrix, Index | None, Index, Index, str, Weights]:
    """Points, their classes or near and far pairs (m, 2), what is to be said of these, and weights.

    Weights are those of points, of near and of far pairs.
    """
    none, ones = np.empty((0, 2), dtype=np.intp), np.empty(0)
    if hasattr(X, "indices") and hasattr(X, "points"):
        points, tuples = points_of(X.points, model), np.asarray(X.indices)
    elif claims.to_host(X).ndim == 3:
        points = points_of(claims.to_host(X).reshape(-1, np.shape(X)[2]), model)
        tuples = np.arange(len(points)).reshape(np.shape(X)[:2])
    else:
        points, codes = points_of(X, model), claims.codes_of(y, len(X))
        masses = claims.weights_of(proof, len(X))
        if model.n_pairs is None:
            return points, codes, none, none, "", (masses, ones, ones)
        near, far = (claims.row_numbers(proof, kind, 2, 0, len(X)) for kind in ("near", "far"))
        if np.ptp(codes[near], axis=1).any() or not np.ptp(codes[far], axis=1).all():
            what = "pairs that were drawn are near in different classes, or far in one"
            raise Refuted(OTHER + what)
        note = f", for the {len(near)} near and {len(far)} far pairs that were drawn"
        weights = masses, *(masses[pairs].prod(axis=1) for pairs in (near, far))
        return points, None, near, far, note, weights
    masses = claims.weights_of(proof, len(tuples))
    used = masses > 0
    if tuples.shape[1] == 3:
        near, far = tuples[used][:, :2], tuples[used][:, ::2]
        return points, None, near, far, "", (ones, masses[used], masses[used])
    kinds = claims.to_host(y)
    if kinds.shape != (len(tuples),):
        raise InvalidInputError(
            f"verify needs +1 or -1 for each of {len(tuples)} pairs; got shape {kinds.shape}."
            " Pass the y of the fit."
        )
    near, far = (used & (kinds == kind) for kind in (1, -1))
    return points, None, tuples[near], tuples[far], "", (ones, masses[near], masses[far])


def check_mmc(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """MMC and KernelMMC."""
    problem, diagonal = PairProblem(model, proof, X, y), bool(getattr(model, "diagonal", False))
    if not problem.points.any():
        return no_variation(0.0)
    dual = claims.finite_array(proof, "components", (None, problem.space.operand.shape[1]))
    if not problem.limits.size <= 1 + tolerance(model):
        raise Refuted(f"infeasible: near pairs have a sum of {problem.limits.size:.6g}, above 1")
    problem.check_floor(model, 1.0)
    images = problem.space.image(dual)
    found = bounds.mmc(
        problem.points, problem.B, problem.far, problem.Z, problem.limits, images, diagonal
    )
    return Found(*found, problem.note, maximises=True)


def check_dml_eig(model: Any, proof: Proof, X: Any, y: Any, _: Any) -> Found:
    """DMLEig."""
    problem = PairProblem(model, proof, X, y)
    n, codes = len(problem.points), problem.codes
    pairs = claims.row_numbers(proof, "pairs", 2, 0, n).T
    alpha = claims.finite_array(proof, "weights", (pairs.shape[1],))
    if not (alpha >= 0).all() or not alpha.sum() > 0:
        raise Refuted("dual point infeasible: weights must not be negative, and not all zero")
    if codes is None:
        far = np.isin(edge_codes(pairs, n), edge_codes(problem.far_pairs, n))
    else:
        far = (codes[pairs[0]] != codes[pairs[1]]) & (problem.masses[pairs] > 0).all(axis=0)
    if not far.all():
        raise Refuted("dual point infeasible: a weight belongs to a pair that is not far")
    problem.check_floor(model, problem.limits.size)
    ends = pairs[0], pairs[1]
    found = bounds.dml_eig(
        problem.points, problem.B, problem.far, problem.Z, problem.limits, ends, alpha
    )
    return Found(*found, problem.note, maximises=True)


def edge_codes(ends: Index, n: int) -> Index:
    """A number for each pair of n points, whatever its order."""
    return np.asarray(ends.min(axis=0) * n + ends.max(axis=0))


def check_mvu(model: Any, proof: Proof, X: Any, _: Any, __: Any) -> Found:
    """MVU."""
    graph, kind = model.graph_, model.constraints
    if model.kernel_ is None:
        factor = claims.as_float64(model.factor_)
        K = factor @ factor.T
    else:
        K = claims.as_float64(model.kernel_)
    n, given, length = graph.n_nodes, _edge_lengths(model, X, model.graph_), graph.lengths
    if K.shape != (n, n) or not np.isfinite(K).all():
        raise Refuted(f"the kernel of the model is not a matrix of the {n} points")
    for e in np.flatnonzero(np.abs(given - length) > tolerance(model) * np.maximum(length, given)):
        raise Refuted(
            f"{OTHER}rows {graph.heads[e]} and {graph.tails[e]} are {given[e]:.6g} apart, the graph"
            f" of the model says {length[e]:.6g}"
        )
    edges = claims.row_numbers(proof, "edges", 2, 0, n).T
    y, thickness = claims.finite_array(proof, "weights", (edges.shape[1], 2)).T
    ends, apart = np.stack([graph.heads, graph.tails]), length > 0
    first, places = np.unique(  # copies are one point
        _components(n, ends[:, ~apart]), return_index=True, return_inverse=True
    )[1:]
    n, K = len(first), K[np.ix_(first, first)]
    held, limits = claims.pair_limits(proof, graph.n_nodes)
    code, kept = np.unique(edge_codes(places[ends[:, apart]], n), return_index=True)
    kept = kept[~np.isin(code, edge_codes(places[held[:, limits[1] > 0]], n))]  # pairs replace them
    code, own = edge_codes(places[ends[:, apart][:, kept]], n), edge_codes(places[edges], n)
    if not np.array_equal(np.sort(own), code):
        raise Refuted("dual point infeasible: its edges are not those of the graph")
    y, thickness, D = y[np.argsort(own)], thickness[np.argsort(own)], length[apart][kept] ** 2
    ends, least = np.stack(divmod(code, n)), np.full(n, np.inf)
    np.minimum.at(least, ends.ravel(), np.tile(D, 2))
    prices = np.tile(claims.slack_prices(kind, model.slack_weight)[:, None], len(D))
    if len(limits[0]):
        held = places[held]
        np.minimum.at(least, held.ravel(), np.tile(limits[0], 2))
        ends, D = np.concatenate([ends, held], axis=1), np.append(D, limits[0])
        y, thickness = np.append(y, limits[3]), np.append(thickness, limits[4])
        prices = np.concatenate([prices, np.where(limits[1:3] > 0, np.inf, 0.0)], axis=1)
    if not (thickness.min(initial=0) >= 0 and thickness.max(initial=0) <= float(model.thickness_)):
        raise Refuted("the proof is about thicker points than the model says")
    D = D + thickness * least[ends].sum(axis=0)
    y = np.where(prices[1] == 0, np.maximum(y, 0), np.where(prices[0] == 0, np.minimum(y, 0), y))
    if ((y > prices[0] * D * (1 + SOLVED)) | (-y > prices[1] * D * (1 + SOLVED))).any():
        raise Refuted("dual point infeasible: a weight is above the price of its edge")
    spectrum = np.linalg.eigvalsh(K)
    if spectrum[0] < -SOLVED * spectrum[-1]:
        raise Refuted(f"infeasible: the kernel has an eigenvalue of {spectrum[0]:.1e}")

    totals, unit, component = np.zeros(4), 0.0, _components(n, ends)
    for nodes in (np.flatnonzero(component == number) for number in np.unique(component)):
        mine, part = np.isin(ends[0], nodes), K[np.ix_(nodes, nodes)]
        if np.abs(part.mean(axis=0)).max() > SOLVED * np.abs(part).max():
            raise Refuted("infeasible: the kernel is not centred")
        if len(nodes) > 1:
            i, j = np.searchsorted(nodes, ends[:, mine])
            sign = 1.0 if model.variance == "max" else -1.0
            *found, worst = bounds.mvu(part, i, j, D[mine], y[mine], sign, prices[:, mine])
            totals = np.append(totals[:3] + found, max(totals[3], worst))
            unit += max(D[mine].mean(), abs(found[1]))
    objective, bound, width, worst = map(float, totals)
    note = f", squared lengths kept to {worst:.1e} of themselves" if np.isinf(prices).any() else ""
    note += f", with {held.shape[1]} limits of pairs" * bool(held.size)
    gap = width / (unit or 1.0) if np.isfinite(width) else np.inf
    return Found(objective, bound, note, own_gap=gap)


def _components(n: int, ends: Index) -> Index:
    """The component of each node of a graph."""
    graph = coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1])


def _edge_lengths(model: Any, X: Any, graph: Any) -> Matrix:
    """The lengths in the table of the edges of a graph."""
    heads, tails = graph.heads, graph.tails
    if hasattr(X, "heads") and hasattr(X, "lengths"):  # a graph itself
        if not (np.array_equal(X.heads, heads) and np.array_equal(X.tails, tails)):
            raise Refuted("the graph is not the one of the fit: it has other edges")
        return claims.as_float64(X.lengths)
    table = claims.as_float64(X.toarray() if hasattr(X, "toarray") else X)
    if table.ndim != 2 or len(table) != graph.n_nodes:
        what = f"it has shape {table.shape}, the graph of the model {graph.n_nodes} nodes"
        raise Refuted(OTHER + what)
    if model.metric == "precomputed":
        there, back = table[heads, tails], table[tails, heads]
        return np.asarray(np.where(np.isfinite(there) & (there > 0), there, back))
    if model.metric == "kernel":
        own = table.diagonal()
        squares = own[heads] + own[tails] - 2 * table[heads, tails]
        return np.asarray(np.sqrt(np.maximum(squares, 0)))
    return np.asarray(np.sqrt(sums.lengths(points_of(table, model), heads, tails)))


CHECKS: dict[str, Callable[[Any, Proof, Any, Any, Any], Found]] = {
    **dict.fromkeys(("LMNN", "KernelLMNN", "MultiMetricLMNN"), check_lmnn),
    **dict.fromkeys(("MCML", "KernelMCML"), check_mcml),
    **dict.fromkeys(("MMC", "KernelMMC"), check_mmc),
    **{"DMLEig": check_dml_eig, "MVU": check_mvu, "NCA": check_nca},
}
