"""Which points are near and which far: labels, numbers, pairs, triplets, quadruplets, chunklets."""

from __future__ import annotations

from nearfar.supervision.chunklets import make_chunklets
from nearfar.supervision.generators import make_pairs, make_triplets
from nearfar.supervision.labels import ClassOrder, class_order
from nearfar.supervision.neighbors import nearest_under, vote
from nearfar.supervision.numbers import make_ranked_triplets
from nearfar.supervision.pairs import Pairs
from nearfar.supervision.quadruplets import make_quadruplets
from nearfar.supervision.relevance import RelevantTargets, make_relevant_targets
from nearfar.supervision.targets import given_targets, nearest_targets, target_table
from nearfar.supervision.tuples import Tuples

__all__ = [
    "ClassOrder",
    "Pairs",
    "RelevantTargets",
    "Tuples",
    "class_order",
    "given_targets",
    "make_chunklets",
    "make_pairs",
    "make_quadruplets",
    "make_ranked_triplets",
    "make_relevant_targets",
    "make_triplets",
    "nearest_targets",
    "nearest_under",
    "target_table",
    "vote",
]
