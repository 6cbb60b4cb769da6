"""Components of edges that are written down."""

import numpy as np
import pytest

from nearfar.errors import DisconnectedGraphError
from nearfar.graphs.components import check_one_component, component_labels, split_components

HEADS, TAILS = np.array([1, 2, 4, 4]), np.array([3, 5, 5, 6])
LABELS = [0, 1, 2, 1, 2, 2, 2]  # node 0 alone, 1-3, and 2-5-4-6


def test_components_are_counted_from_the_first_node():
    np.testing.assert_array_equal(component_labels(7, HEADS, TAILS), LABELS)
    np.testing.assert_array_equal(component_labels(3, HEADS[:0], TAILS[:0]), [0, 1, 2])


def test_components_come_largest_first_with_their_nodes_and_edges():
    found = [
        (list(nodes), list(edges)) for nodes, edges in split_components(np.array(LABELS), HEADS)
    ]
    assert found == [([2, 4, 5, 6], [1, 2, 3]), ([1, 3], [0]), ([0], [])]


def test_several_components_are_refused_with_their_sizes():
    check_one_component(np.zeros(4, dtype=np.intp), "MVU", "")
    with pytest.raises(DisconnectedGraphError, match=r"3 components, of 4, 2 and 1 nodes\. Add"):
        check_one_component(np.array(LABELS), "MVU", "Add edges.")
