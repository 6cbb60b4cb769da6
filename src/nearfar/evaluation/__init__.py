"""How good a metric is, in numbers."""

from nearfar.evaluation.compare import Row, baselines, compare, measure
from nearfar.evaluation.knn import knn_error, knn_predict, standard_error
from nearfar.evaluation.split import Split, split_points

__all__ = [
    "Row",
    "Split",
    "baselines",
    "compare",
    "knn_error",
    "knn_predict",
    "measure",
    "split_points",
    "standard_error",
]
