"""Who is near and who is far: labels, target neighbours."""

from __future__ import annotations

from nearfar.supervision.labels import ClassOrder, class_order
from nearfar.supervision.neighbors import nearest_under, vote
from nearfar.supervision.targets import given_targets, nearest_targets

__all__ = [
    "ClassOrder",
    "class_order",
    "given_targets",
    "nearest_targets",
    "nearest_under",
    "vote",
]
