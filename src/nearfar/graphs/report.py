"""A summary of a graph: components, duplicates, degrees and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_LISTED = 5  # numbers in a sentence


@dataclass(frozen=True)
class GraphReport:
    """Summary of a neighbourhood graph; ``print`` it.

    Attributes
    ----------
    n_nodes, n_edges, n_angles : int
        Number of nodes, of edges, and of edges that only join neighbours of a third node.
    component_sizes : tuple of int
        Number of nodes of each component, largest first.
    n_duplicates : int
        Number of nodes at distance 0 from an earlier node.
    min_degree, mean_degree, max_degree : int, float, int
        Number of edges of a node.
    min_length, mean_length, max_length : float
        Edge lengths, without those of 0; 0 if there are no others.
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
        pieces = (
            "connected" if self.connected else f"{len(sizes)} components: {format_sizes(sizes)}"
        )
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


def format_sizes(sizes: Sequence[int]) -> str:
    """A list of numbers as text: "5, 3 and 2"; of many, the first and how many more there are."""
    few = list(sizes[:MOST_LISTED])
    if len(sizes) > MOST_LISTED:
        return f"{', '.join(map(str, few))} and {len(sizes) - MOST_LISTED} smaller ones"
    return " and ".join([", ".join(map(str, few[:-1])), str(few[-1])] if few[1:] else [str(few[0])])
