"""A summary of a graph: components, duplicates, degrees and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_LISTED = 5  # numbers in a sentence


@dataclass(frozen=True)
class GraphReport:
    """Components, duplicates, degrees and lengths of a neighbourhood graph; ``print`` it.

    Attributes
    ----------
    n_nodes, n_edges, n_angles : int
        Nodes, edges, and those edges that only join neighbours of a third node.
    component_sizes : tuple of int
        Number of nodes of each component, largest first.
    n_duplicates : int
        Nodes at distance 0 from an earlier one.
    min_degree, mean_degree, max_degree : int, float, int
        Edges of a node.
    min_length, mean_length, max_length : float
        Lengths of the edges that are not 0; 0 if there are none.
    """

    n_nodes: int
    n_edges: int
    n_angles: int
    component_sizes: tuple[int, ...]
    n_duplicates: int
    min_degree: int
    mean_degree: float
    max_degree: int
    min_length: float
    mean_length: float
    max_length: float

    @property
    def connected(self) -> bool:
        """Whether there is one component."""
        return len(self.component_sizes) == 1

    def __str__(self) -> str:
        sizes = self.component_sizes
        pieces = "connected" if self.connected else f"{len(sizes)} components: {listed(sizes)}"
        return "\n".join(
            [
                f"nodes       {self.n_nodes} ({pieces})",
                f"edges       {self.n_edges} ({self.n_angles} of them angles)",
                f"degrees     {self.min_degree} to {self.max_degree}, mean {self.mean_degree:.1f}",
                f"lengths     {self.min_length:.3g} to {self.max_length:.3g},"
                f" mean {self.mean_length:.3g}",
                f"duplicates  {self.n_duplicates or 'none'}",
            ]
        )


def listed(sizes: Sequence[int]) -> str:
    """Numbers in words: "5, 3 and 2", and how many more if there are many."""
    few = list(sizes[:MOST_LISTED])
    if len(sizes) > MOST_LISTED:
        return f"{', '.join(map(str, few))} and {len(sizes) - MOST_LISTED} smaller ones"
    return " and ".join([", ".join(map(str, few[:-1])), str(few[-1])] if few[1:] else [str(few[0])])
