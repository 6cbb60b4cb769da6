"""What the thesis shows on small examples, measured: each toy yields what it claims.

All sizes are the thesis'; in a smoke run they are small enough for seconds.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np
from sklearn.manifold import Isomap

from benchmarks import common
from benchmarks.papers import toys_data
from benchmarks.papers.table32_methods import on_device
from nearfar import MVU, NeighborhoodGraph
from nearfar.evaluation import measure_embedding

FLAT = 0.95  # share of the variance in two dimensions that counts as two dimensions
SEEN = 0.01  # share of the variance of a dimension that counts
SLACK = 20  # price of slack over the least that keeps the variance finite
MEASURED = {
    "local_continuity": "local continuity",
    "local_trust": "local trust",
    "neighborhood_intersection": "local intersection",
}


@dataclass(frozen=True)
class Claim:
    """Something that the thesis says, and what is found here; None where it says nothing."""

    what: str
    thesis: str
    ours: str
    holds: bool | None


class Toy:
    """MVU on a device, with warnings off: what they say is what is measured."""

    def __init__(self, smoke, device):
        self.smoke, self.device = smoke, device

    def unfolded(self, X, k, **options):
        """MVU fitted on points, or on a graph."""
        given = X if isinstance(X, NeighborhoodGraph) else on_device(X, self.device)
        learner = MVU(n_neighbors=k, on_disconnected="link", random_state=0, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return learner.fit(given)


def shares(model):
    """Of the eigenvalues in the variance, largest first."""
    return model.eigenvalues_ / model.eigenvalues_.sum()


def shown(values):
    return " ".join(f"{value:.3f}" for value in values)


def quality(X, model, neighbors=15):
    Y = model.embedding_
    return measure_embedding(X, Y if isinstance(Y, np.ndarray) else Y.cpu().numpy(), neighbors)


def slack_weight(X, k):
    """The thesis' omega at SLACK times the least price."""
    graph = NeighborhoodGraph.from_points(X, k)
    adjacent = np.zeros((len(X), len(X)))
    adjacent[graph.heads, graph.tails] = adjacent[graph.tails, graph.heads] = 1
    laplacian = np.diag(adjacent.sum(0)) - adjacent
    rate = SLACK / np.linalg.eigvalsh(laplacian)[1]
    return rate / (1 + rate)


def lock_up(toy):
    """Fig. 3.28: the more neighbours, the stiffer, until nothing unfolds; slack helps.

    The thesis keeps lengths exactly. By default points have some thickness here, which helps, too.
    """
    X = _roll(toy)
    outcomes = {"unfolds": (4, 5, 6), "locks up": (7, 8)}
    if toy.smoke:
        outcomes = {"unfolds": (4,), "locks up": (8,)}
    for thesis, neighbors in outcomes.items():
        for k in neighbors:
            model = toy.unfolded(X, k, constraints="exact")
            yield _unfolding(f"exact lengths, k = {k}", thesis, X, model)
    for thesis, neighbors in outcomes.items():
        for k in neighbors:
            found = _unfolding(f"points with thickness, k = {k}", thesis, X, toy.unfolded(X, k))
            yield replace(found, thesis=f"{thesis}, with exact lengths", holds=None)
    k = max(outcomes["locks up"])
    model = toy.unfolded(X, k, constraints="slack", slack_weight=slack_weight(X, k))
    yield _unfolding(f"slack, k = {k}", "unfolds", X, model)


def _roll(toy):
    if toy.smoke:
        return toys_data.swiss_roll(100, turns=1, height=4)[0]
    return toys_data.swiss_roll(1000)[0]


def _unfolding(what, thesis, X, model):
    """Whether the variance is in two dimensions, or that of the points, or neither."""
    spectrum, mean = shares(model), quality(X, model).harmonic_mean
    found = "unfolds" if spectrum[:2].sum() > FLAT else "unfolds in part"
    if model.locked_up_:
        found = "locks up"
    ours = f"{found}: spectrum {shown(spectrum[:3])}, harmonic mean {mean:.3f}"
    return Claim(what, thesis, ours, found == thesis)


def comb(toy):
    """Fig. 3.15: MVU may need more dimensions than the input has."""
    X = toys_data.comb(150 if toy.smoke else 300)
    spectrum = shares(toy.unfolded(X, 3, constraints="exact"))
    count = int((spectrum > SEEN).sum())
    what = "dimensions of MVU, k = 3, for points in 2"
    yield Claim(what, "6", f"{count}: {shown(spectrum[: count + 1])}", count == 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = Isomap(n_neighbors=5, n_components=20).fit(X).kernel_pca_.eigenvalues_
    values = values / values.sum()
    count = int((values > SEEN).sum())
    yield Claim("dimensions of Isomap, k = 5", "8", f"{count}: {shown(values[: count + 1])}", None)


def trefoil(toy):
    """Fig. 3.8: a closed band, whatever knots it is tied in."""
    X = toys_data.trefoil(180 if toy.smoke else 1617)
    for k in (4,) if toy.smoke else (4, 5):
        spectrum = shares(toy.unfolded(X, k))
        holds = bool(spectrum[:2].sum() > FLAT and spectrum[1] > 10 * spectrum[2])
        yield Claim(f"spectrum, k = {k}", "two dominant eigenvalues", shown(spectrum[:4]), holds)


def least_variance(toy):
    """Fig. 3.24: the least variance instead of the largest is worse by all measures."""
    for name, X, dimensions, k in _images(toy):
        most, least = (
            quality(X, toy.unfolded(X, k, n_components=dimensions, variance=v), k)
            for v in ("max", "min")
        )
        for measure, title in MEASURED.items():
            ratio = getattr(least, measure) / getattr(most, measure)
            what = f"{name}, {dimensions} dimensions: {title}, least over largest"
            yield Claim(what, "below 1", f"{ratio:.3f}", bool(ratio < 1))


def _images(toy):
    """(name, points, dimensions, neighbours)"""
    if toy.smoke:
        yield "fives", toys_data.fives(smoke=True), 2, 4
        return
    yield "Swiss roll, 500 points", toys_data.swiss_roll(500)[0], 2, 4
    for name, load, dimensions, k in (
        ("teapots, reduced set", toys_data.teapots, 2, 3),
        ("MNIST, 500 fives", lambda: toys_data.fives(smoke=False), 10, 4),
        ("Frey faces, every fourth", toys_data.frey_faces, 10, 4),
    ):
        try:
            yield name, load(), dimensions, k
        except common.UnavailableError as error:
            print(f"{name}: left out: {error}", flush=True)


def bad_edges(toy):
    """Fig. 3.29: short circuits are found by random walks, and cut."""
    X, along = toys_data.swiss_roll(600, noise=0.7)
    k = 7
    graph = NeighborhoodGraph.from_points(X, k)
    cut = graph.cut_bad_edges(steps=7, sigma=1.0)

    def short_circuits(graph):
        apart = np.abs(along[graph.heads] - along[graph.tails])
        return int((apart > np.pi * np.hypot(X[:, 0], X[:, 2]).min()).sum())

    before, after = short_circuits(graph), short_circuits(cut)
    ours = f"{before} before, {after} after, {graph.n_edges - cut.n_edges} of {graph.n_edges} cut"
    yield Claim("edges between layers", "all cut", ours, before > 0 and after == 0)
    if toy.smoke:
        return
    weight = slack_weight(X, k)
    options = {"constraints": "slack", "slack_weight": weight}
    means = [quality(X, toy.unfolded(g, k, **options)).harmonic_mean for g in (graph, cut)]
    what = "harmonic mean of the measures, with slack"
    yield Claim(what, "better", f"{means[0]:.3f}, then {means[1]:.3f}", bool(means[1] > means[0]))


TOYS = {
    "lock_up": ("Lock-up of a Swiss roll, n = 1000 (Fig. 3.28)", lock_up),
    "comb": ("A comb, n = 300 (Fig. 3.15)", comb),
    "trefoil": ("A trefoil knot, n = 1617 (Fig. 3.8)", trefoil),
    "least_variance": ("Least against largest variance (Fig. 3.24)", least_variance),
    "bad_edges": ("Bad edges of a noisy Swiss roll, n = 600 (Fig. 3.29)", bad_edges),
}
