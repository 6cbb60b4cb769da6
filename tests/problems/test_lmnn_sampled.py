"""The gap of LMNN from a sample of its rows: its parts against exact counts, and its coverage."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from nearfar.problems import lmnn_sampled
from nearfar.problems.lmnn import LMNNProblem
from nearfar.problems.lmnn_sampled import (
    CONFIDENCE,
    LEVELS,
    Draws,
    SampledLMNNProblem,
    clique_loss,
    drawn_rows,
    most_marked,
    most_unseen,
    n_needed,
)
from nearfar.supervision import class_order, nearest_targets

RISK = 1 - CONFIDENCE


def overlapping_classes(n=3000, d=6, seed=0):
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(0, 4, n))
    return rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(4, d))[y], y


def problem_of(X, y, **settings):
    labels = class_order(y, "LMNN")
    edges = nearest_targets(X, labels, 3)
    return LMNNProblem.build(X, X.mean(0), edges, labels.starts, 0.3, **settings)


def losses(problem, Z, known):
    """w of (1) as a matrix, edge by edge; ``known`` holds codes edge · n + tail of each edge."""
    n, (heads, tails) = len(Z), problem.edges
    labels = np.repeat(np.arange(len(problem.starts) - 1), np.diff(problem.starts))
    masses = np.ones(n) if problem.masses is None else problem.masses
    table = np.zeros((n, n))
    for edge, (i, j) in enumerate(zip(heads, tails, strict=True)):
        slack = 1 + ((Z[i] - Z[j]) ** 2).sum() - ((Z[i] - Z) ** 2).sum(axis=1)
        slack[labels == labels[i]] = 0
        slack[[code % n for code in known.get(edge, ())]] = 0
        table[i] += np.maximum(slack, 0) * masses[i] * masses
    return table + table.T


def by_edge(codes, n):
    found = {}
    for code in codes:
        found.setdefault(code // n, []).append(code)
    return found


@pytest.mark.parametrize("seen", [0, 2, 7])
def test_most_marked_is_the_largest_number_that_is_likely_enough(seen):
    """By the hypergeometric distribution with whole numbers."""
    population, drawn, risk = 60, 25, 0.01

    def probability(marked):
        ways = [
            comb(marked, few) * comb(population - marked, drawn - few) for few in range(seen + 1)
        ]
        return sum(ways) / comb(population, drawn)

    most = most_marked(population, drawn, seen, risk)
    assert probability(most) > risk >= probability(most + 1)


def test_most_marked_of_a_large_population():
    """(1 − m/N)^V is the probability to see none of V when V is small beside N."""
    n, m = 100_000_000, 1_000_000
    assert most_marked(n, m, 0, RISK) == pytest.approx(np.log(RISK) / np.log1p(-m / n), abs=1)
    assert most_marked(n, n, 5, RISK) == 5


def test_unseen_loss_of_nothing_missing_is_that_of_a_clique():
    costs, masses = np.array([5.0, 1.0, 3.0, 2.0]), np.array([1.0, 0.5, 2.0, 1.0])
    assert clique_loss(costs, masses) == pytest.approx([0, 8 * 2, 10 * 3, 11 * 4])
    totals = np.zeros(40)
    hidden = most_marked(44, 40, 0, RISK / 2)
    assert hidden == 2
    assert most_unseen(totals, costs, masses, RISK) == pytest.approx(16)


def test_levels_bound_many_small_losses_better_than_a_clique():
    """A tenth of the rows misses a little: a bound by level 1 is far below that of a clique."""
    totals = np.where(np.arange(2000) % 10 == 0, 0.01, 0.0)
    costs = np.full(8000, 6.0)
    unseen = most_unseen(totals, costs, np.ones(8000), RISK)
    light = most_marked(10_000, 2000, 200, RISK / 2) - 200
    heavy = most_marked(10_000, 2000, 0, RISK / 6)
    assert unseen == pytest.approx(light * LEVELS[1] + 6 * heavy * (heavy - 1))
    assert unseen < clique_loss(costs, np.ones(8000))[light - 1] / 500


def test_rows_are_as_many_as_the_tolerance_needs():
    costs, masses = np.linspace(1, 6, 20_000), np.ones(20_000)
    generator = np.random.default_rng(0)
    largest, drawn = drawn_rows(costs, n_needed(costs, masses, 5000.0, RISK), generator)
    assert list(largest) == list(range(19_800, 20_000))
    assert len(np.intersect1d(largest, drawn)) == 0
    rest = np.setdiff1d(np.arange(20_000), np.concatenate([largest, drawn]))
    unseen = most_unseen(np.zeros(len(drawn)), costs[rest], masses[rest], RISK)
    assert 0.7 * 5000 < unseen <= 5000
    assert n_needed(costs, masses, 50.0, RISK) > 3 * len(drawn)


@pytest.mark.parametrize("weighted", [False, True])
def test_missing_losses_equal_plain_loops(monkeypatch, weighted):
    """Half of the triplets are kept from the certificate, which finds those that touch its rows."""
    monkeypatch.setattr(lmnn_sampled, "MOST", 2.0)
    X, y = overlapping_classes(120, 3)
    masses = np.linspace(0.5, 1.5, 120) if weighted else None
    problem = SampledLMNNProblem.of(problem_of(X, y, masses=masses), Draws(0), 0.1)
    L = problem.normalised(np.eye(3))
    triplets = problem.search(L, 0.1, 0.1)
    half = triplets.pair[::2], triplets.edge[::2], triplets.prox[::2]
    few = problem._triplets(triplets.heads, triplets.tails, *half, 0.1)
    Z = problem.images(problem.returned(L))
    lengths = ((Z[problem.edges[0]] - Z[problem.edges[1]]) ** 2).sum(axis=1)
    rows = np.array([3, 50, 51, 118])
    *_, loss, totals = problem._missing(Z, lengths, few, rows)

    codes = few.edge * 120 + few.tails[few.pair]
    table = losses(problem, Z, by_edge(codes, 120))
    assert totals == pytest.approx(table[rows].sum(axis=1))
    touched = np.zeros((120, 120))
    touched[rows], touched[:, rows] = table[rows], table[:, rows]
    assert loss.sum() == pytest.approx(np.triu(touched).sum())
    costs = problem._costs(lengths)[0]
    m = np.ones(120) if masses is None else masses
    assert (table <= np.outer(costs, m) + np.outer(m, costs)).all()

    found, joined = problem.certify(L, few)
    exact, _ = LMNNProblem.certify(problem, L, triplets)
    assert found.confidence == CONFIDENCE
    assert found.objective <= exact.objective * (1 + 1e-12) <= found.objective + found.unseen
    assert len(joined) > len(few)


def missing_cases(table, rng):
    """Which losses a working set may lack: none, some at random, a whole group of rows."""
    n = len(table)
    group = np.argsort(-table.sum(axis=1))[:8]
    some = np.triu(rng.random((n, n)) < 0.01)
    clique = np.zeros((n, n), dtype=bool)
    clique[np.ix_(group, group)] = True
    return {"none": some & False, "some": some | some.T, "clique": clique}


@pytest.fixture(scope="module")
def costs_and_losses():
    """c of each of 3000 rows, and the losses of all pairs of them."""
    X, y = overlapping_classes()
    problem = problem_of(X, y)
    Z = problem.images(problem.components(problem.normalised(np.eye(X.shape[1]))))
    lengths = ((Z[problem.edges[0]] - Z[problem.edges[1]]) ** 2).sum(axis=1)
    costs = np.bincount(problem.edges[0], 1 + lengths, len(X))
    squares = np.where(y[:, None] == y, np.inf, cdist(Z, Z, "sqeuclidean"))
    table = sum((1 + near[:, None] - squares).clip(0) for near in lengths.reshape(-1, 3).T)
    return costs, table + table.T


@pytest.mark.parametrize("case", ["none", "some", "clique"])
def test_bound_covers_the_objective_in_all_draws(case, costs_and_losses):
    """Losses of all pairs of 3000 rows are known; each of 300 draws must be above what is missing.

    A draw fails with a probability of 0.001 at most. What it adds is no more than a clique of the
    hidden rows loses, a small share of the objective, unless much is missing.
    """
    rng = np.random.default_rng(1)
    costs, table = costs_and_losses
    missing = csr_array(table * missing_cases(table, rng)[case])
    totals, masses, whole = missing.sum(axis=1), np.ones(len(costs)), table.sum() / 2
    added, count = [], n_needed(costs, masses, 0.1 * whole, RISK)
    for _ in range(300):
        largest, drawn = drawn_rows(costs, count, rng)
        rest = np.ones(len(costs), dtype=bool)
        rest[np.concatenate([largest, drawn])] = False
        hidden = rest @ (missing @ rest) / 2
        unseen = most_unseen(totals[drawn], costs[rest], masses[rest], RISK)
        assert hidden <= unseen
        added.append(unseen / whole)
    if case == "none":
        assert max(added) <= 0.1
        assert rest.sum() > 1000


def test_each_draw_is_new_and_may_fail_half_as_often():
    draws = Draws(0)
    (first, risk), (second, half) = draws.next(), draws.next()
    assert (risk, half) == (RISK / 2, RISK / 4)
    assert first is second
    _, continued = Draws(0, done=2).next()
    assert continued == RISK / 8
    seeds = [Draws(0, done).next()[0].integers(2**31) for done in (0, 2)]
    assert seeds[0] != seeds[1]


def test_a_dual_point_of_float32_is_computed_again():
    """The bound is that of the same α from the points in float64."""
    X, y = overlapping_classes(300, 4)
    problem = SampledLMNNProblem.of(problem_of(X.astype(np.float32), y), Draws(0), 0.1)
    L = problem.normalised(np.eye(4))
    looked = problem.bound(problem.survey(L, 0.1, 0.1))[1].triplets
    wrong = replace(looked.best, total=2 * looked.best.total, S=(0 * looked.best.S[0],))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lmnn_sampled, "MOST", 2.0)
        here, there = (
            problem.certify(L, replace(looked, best=best))[0] for best in (looked.best, wrong)
        )
    assert there.bound == pytest.approx(here.bound, rel=1e-9)
