"""LMNN whose objective is bounded by a sample of the rows, where all pairs are too many.

The bound (3) of `nearfar.problems.lmnn` holds for any α in [0, 1], also for one that is zero except
on the triplets at hand. Only the objective needs all triplets. With the other triplets in pairs of
rows, where w_il is their loss with i as the point and l as the impostor, or the other way round:

(1) objective  f = f_at_hand + μ R,  R = Σ_{i<l} w_il,  T_i = Σ_l w_il
(2) each pair  w_il ≤ c_i m_l + c_l m_i,  c_i = m_i Σ_e (1 + D(e)) over the target edges of i

The rows with the largest c and a random sample of the others are compared with all points, both as
points and as impostors, so that a pair is seen if *one* of its ends is compared. For fixed levels
0 = x_0 < x_1 < … the number of drawn rows with T > x_j is hypergeometric, which gives an upper
confidence bound V_j on the number of such rows that were not compared. Then for every j

(3) unseen     R ≤ R_seen + Σ_{h<j} (x_{h+1} − x_h) V_h + C(V_j) W(V_j − 1)

with C(v) the sum of the v largest c, and W(v) that of the v largest m, of rows that are not
compared. The first sum is for pairs with an end whose T is at most x_j, the product for all others.
It holds with probability 1 − δ, and assumes nothing but the random draw.

Shapes and names are those of `nearfar.problems.lmnn`; the proof is in docs/algorithms/lmnn.md.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from sklearn.utils import check_random_state

from nearfar.kernels import Array
from nearfar.kernels.tiles import labels_of
from nearfar.problems.lmnn import CERTIFY_WIDTH, Certificate, LMNNProblem
from nearfar.problems.lmnn_triplets import DualPoint, Triplets

Index = NDArray[np.intp]
Matrix = NDArray[np.float64]

CONFIDENCE = 0.999  # that all gaps of a fit hold
LEVELS = (0.0, 1.0, 4.0, 16.0)  # x of (3), in margins
RISKS = (0.5, 1 / 6, 1 / 6, 1 / 6)  # share of δ for each level
LARGEST = 0.01  # share of the rows, those with the largest c, that are always compared
ADDED = 0.5  # share of the tolerance that (3) may add to the gap if no triplet is found missing
MOST = 0.25  # share of the rows from which comparing all pairs is no dearer
ROUNDING = 1e-4  # relative error of a hypergeometric probability, at most


class Draws:
    """The random draws of a fit, each independent of what was computed before it.

    The a-th fails with probability δ / 2^a at most, so that all hold with probability 1 − δ.
    ``done`` counts the draws of an earlier fit that is continued.
    """

    def __init__(self, random_state: Any, done: int = 0) -> None:
        seed = check_random_state(random_state).randint(2**31)
        self._generator, self._count = np.random.default_rng([seed, done]), done

    def next(self) -> tuple[np.random.Generator, float]:
        """The generator for the next draw, and how likely that draw may fail."""
        self._count += 1
        return self._generator, (1 - CONFIDENCE) / 2**self._count


@dataclass(frozen=True)
class SampledLMNNProblem(LMNNProblem):
    """The program (7) of `nearfar.problems.lmnn`, with certificates from samples of its rows."""

    draws: Draws
    tol: float

    @classmethod
    def of(cls, problem: LMNNProblem, draws: Draws, tol: float) -> Self:
        """The same problem, to be solved to this relative gap."""
        parts = {field.name: getattr(problem, field.name) for field in fields(problem)}
        return cls(**parts, draws=draws, tol=tol)

    def certify(
        self, L: Matrix, previous: Triplets | None = None, *, keep: bool = False
    ) -> tuple[Certificate, Triplets]:
        """The gap of the map that is returned for L, at most, with its confidence.

        The triplets are those of ``previous`` and those that were found missing. Certain, from all
        pairs, if a sample would have to hold more than a quarter of the rows.
        """
        if previous is None:
            previous = self.search(L, CERTIFY_WIDTH, CERTIFY_WIDTH)
        if previous.best is not None:  # its sums are in working precision
            previous = replace(previous, best=DualPoint(previous.best.alpha))
        components = self.returned(L)
        Z = self._images_of(components)
        lengths = self._lengths(Z, *self.edges)
        at = self._placed_at(L, Z, components, previous)
        known, _ = self.objective(at)
        generator, risk = self.draws.next()
        costs, masses = self._costs(lengths)
        allowed = ADDED * self.tol * max(known, 1.0) / self.push_weight
        count = n_needed(costs, masses, allowed, risk)
        if count > MOST * len(costs):
            return super().certify(L, previous, keep=keep)
        largest, drawn = drawn_rows(costs, count, generator)
        certificate = self._certificate(at, self.exact(), self._exactly_kept)
        rows = np.concatenate([largest, drawn])
        edge, tail, loss, totals = self._missing(Z, lengths, previous, rows)
        rest = np.ones(len(costs), dtype=np.bool_)
        rest[rows] = False
        unseen = most_unseen(totals[len(largest) :], costs[rest], masses[rest], risk)
        found = replace(
            certificate,
            objective=known + self.push_weight * float(loss.sum()),
            unseen=self.push_weight * unseen,
            n_active=certificate.n_active + len(loss),
            confidence=CONFIDENCE,
        )
        return found, self._joined(found.triplets, edge, tail, 0 * loss)

    def certify_returned(
        self, L: Matrix, certificate: Certificate | None, triplets: Triplets
    ) -> Certificate:
        """As the base class; what `certify` said from a sample is about the returned map."""
        if certificate is not None and certificate.confidence is not None:
            return certificate
        if certificate is None:
            certificate, triplets = self.certify(L, triplets)
            if certificate.confidence is not None:
                return certificate
        return super().certify_returned(L, certificate, triplets)

    def _costs(self, lengths: Array) -> tuple[Matrix, Matrix]:
        """c of (2) and m of (8) of all rows, on the host."""
        kernels, n = self.kernels, len(self.U)
        masses = np.ones(n) if self.masses is None else kernels.to_host(self.masses)
        reaches = kernels.to_host(kernels.segment_sum(self.edges[0], 1 + lengths, n))
        return masses * reaches, masses

    def _missing(
        self, Z: Array, lengths: Array, triplets: Triplets, rows: Index
    ) -> tuple[Array, Array, Array, Matrix]:
        """Active triplets that touch the rows and are not at hand: edges, impostors and losses.

        The last is T of (1) of each of the rows, on the host. Time O(m n r) for m rows.
        """
        kernels, n = self.kernels, len(self.U)
        heads, tails = self._pairs_at(Z, lengths, rows)
        count = self.first_edge[heads + 1] - self.first_edge[heads]
        pair = kernels.repeat(kernels.arange(len(heads), heads), count)
        edge = (
            kernels.arange(len(pair), heads)
            + (self.first_edge[heads] - kernels.cumsum(count) + count)[pair]
        )
        loss = (1 + lengths[edge] - self._lengths(Z, heads, tails)[pair]).clip(0, None)
        if self.masses is not None:
            loss = loss * (self.masses[heads] * self.masses[tails])[pair]
        known, code = triplets.edge * n + triplets.tails[triplets.pair], edge * n + tails[pair]
        missing = loss > 0
        if len(known):
            known = kernels.unique(known)
            at = kernels.searchsorted(known, code).clip(0, len(known) - 1)
            missing = missing & (known[at] != code)
        used = kernels.flatnonzero(missing)
        edge, tail, loss = edge[used], tails[pair[used]], loss[used]
        total = kernels.segment_sum(self.edges[0][edge], loss, n)
        total = kernels.to_host(total + kernels.segment_sum(tail, loss, n))
        return edge, tail, loss, total[rows]

    def _pairs_at(self, Z: Array, lengths: Array, rows: Index) -> tuple[Array, Array]:
        """All pairs of a point and an impostor that is closer than its reach, if one is a row."""
        kernels, n = self.kernels, len(Z)
        reach = kernels.segment_max(self.edges[0], lengths, n) + 1
        labels = kernels.index(labels_of(self.starts), Z)
        screen = kernels.single(Z) if self.is_single else Z
        some, heads = kernels.index(rows, Z), kernels.flatnonzero(reach > -np.inf)
        mine = some[kernels.flatnonzero(reach[some] > -np.inf)]
        codes = []
        for own, others in ((mine, kernels.arange(n, heads)), (heads, some)):
            i, j = kernels.cross_impostor_pairs(
                Z[own],
                reach[own],
                Z[others],
                labels[own],
                labels[others],
                (screen[own], screen[others]),
            )
            codes.append(own[i] * n + others[j])
        code = kernels.unique(kernels.concatenate(codes))
        return code // n, code % n

    def _joined(self, triplets: Triplets, edge: Array, tail: Array, prox: Array) -> Triplets:
        """The triplets at hand, and others by their edges, impostors and multipliers."""
        if len(edge) == 0:
            return triplets
        concatenate, best = self.kernels.concatenate, triplets.best
        if best is not None:
            best = DualPoint(concatenate([best.alpha, self._kept_alpha(0 * prox)]))
        joined = self._of_edges(
            concatenate([triplets.edge, edge]),
            concatenate([triplets.tails[triplets.pair], tail]),
            concatenate([triplets.prox, prox]),
            triplets.width,
        )
        return replace(joined, best=best)


def n_needed(costs: Matrix, masses: Matrix, allowed: float, risk: float) -> int:
    """How many random rows make (3) at most ``allowed`` if they find no triplet missing."""
    others = _by_cost(costs)[1]
    products = clique_loss(costs[others], masses[others])
    most = int(np.searchsorted(products, allowed, side="right"))  # V whose loss is allowed
    share = 1 - (RISKS[0] * risk) ** (1 / (most + 1))  # (1 - share)^V bounds that V are not seen
    return int(np.ceil(share * len(others)))


def drawn_rows(costs: Matrix, count: int, generator: np.random.Generator) -> tuple[Index, Index]:
    """The rows with the largest c, and so many random ones of the others, ascending."""
    largest, others = _by_cost(costs)
    return largest, others[np.sort(generator.choice(len(others), count, replace=False))]


def _by_cost(costs: Matrix) -> tuple[Index, Index]:
    """The rows that are always compared, and the others, ascending."""
    order = np.argsort(-costs, kind="stable")
    n_largest = int(np.ceil(LARGEST * len(costs)))
    return np.sort(order[:n_largest]), np.sort(order[n_largest:])


def clique_loss(costs: Matrix, masses: Matrix) -> Matrix:
    """C(v) W(v − 1) of (3) for v = 1, 2, … n."""
    summed = np.cumsum(-np.sort(-costs))
    others = np.concatenate([[0.0], np.cumsum(-np.sort(-masses))[:-1]])
    return np.asarray(summed * others)


def most_unseen(totals: Matrix, costs: Matrix, masses: Matrix, risk: float) -> float:
    """What (3) adds to R_seen, with probability 1 − risk.

    ``totals`` are T of the drawn rows, ``costs`` and ``masses`` c and m of the rows that were not
    compared.
    """
    n_rest, n_drawn = len(costs), len(totals)
    products = np.concatenate([[0.0], clique_loss(costs, masses)])
    light, least = 0.0, np.inf
    steps = np.diff(LEVELS, append=np.inf)
    for level, step, share in zip(LEVELS, steps, RISKS, strict=True):
        seen = int((totals > level).sum())
        count = most_marked(n_rest + n_drawn, n_drawn, seen, share * risk) - seen
        least = min(least, light + float(products[count]))
        light += step * count
    return float(least)


def most_marked(population: int, drawn: int, seen: int, risk: float) -> int:
    """Upper confidence bound on the marked members of a population, ``seen`` of them drawn.

    The largest number under which the hypergeometric probability of so few is above the risk.
    """
    low, high = seen, population - drawn + seen  # the first is likely enough, the last possible
    while low < high:
        middle = (low + high + 1) // 2
        if _few_are_likely(population, middle, drawn, seen, risk):
            low = middle
        else:
            high = middle - 1
    return low


def _few_are_likely(population: int, marked: int, drawn: int, seen: int, risk: float) -> bool:
    """Whether at most ``seen`` marked members are drawn with a probability above the risk."""
    few = np.arange(max(0, drawn - (population - marked)), min(seen, drawn, marked) + 1)
    logs = (
        _log_choices(marked, few)
        + _log_choices(population - marked, drawn - few)
        - _log_choices(population, np.array(drawn))
    )
    return bool(np.exp(logs).sum() * (1 + ROUNDING) > risk)


def _log_choices(n: int, k: Index) -> Matrix:
    """The logarithm of the binomial coefficient."""
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
