"""How good a metric or an embedding is, in numbers."""

from nearfar.evaluation.compare import baselines, compare, compare_fitted, measure
from nearfar.evaluation.embeddings import (
    EmbeddingMeasures,
    alignment_error,
    compare_embeddings,
    local_continuity,
    local_trust,
    measure_embedding,
    neighborhood_intersection,
    out_of_sample_consistency,
    trustworthiness,
)
from nearfar.evaluation.knn import knn_error, knn_predict, leave_one_out_error
from nearfar.evaluation.neighbors import NeighborChoice, NeighborTrial, choose_n_neighbors
from nearfar.evaluation.rankings import (
    RetrievalMeasures,
    hit_rate_at_k,
    mean_average_precision,
    mean_reciprocal_rank,
    ndcg_at_k,
    precision_at_k,
    r_precision,
    ranking_measures,
    recall_at_k,
)
from nearfar.evaluation.relevance import RankedRelevance, ranked_relevance
from nearfar.evaluation.retrieval import retrieval_measures
from nearfar.evaluation.split import Split, split_points, with_fewer_tests
from nearfar.evaluation.statistics import mcnemar, standard_error, wilson_interval
from nearfar.evaluation.suspicious import SuspiciousLabels, suspicious_labels
from nearfar.evaluation.targets import TargetChoice, TargetTrial, choose_targets
from nearfar.evaluation.verdict import Comparison, Row, Verdict
from nearfar.evaluation.verification import (
    best_threshold,
    equal_error_rate,
    roc,
    true_positive_rate_at,
)

__all__ = [
    "Comparison",
    "EmbeddingMeasures",
    "NeighborChoice",
    "NeighborTrial",
    "RankedRelevance",
    "RetrievalMeasures",
    "Row",
    "Split",
    "SuspiciousLabels",
    "TargetChoice",
    "TargetTrial",
    "Verdict",
    "alignment_error",
    "baselines",
    "best_threshold",
    "choose_n_neighbors",
    "choose_targets",
    "compare",
    "compare_embeddings",
    "compare_fitted",
    "equal_error_rate",
    "hit_rate_at_k",
    "knn_error",
    "knn_predict",
    "leave_one_out_error",
    "local_continuity",
    "local_trust",
    "mcnemar",
    "mean_average_precision",
    "mean_reciprocal_rank",
    "measure",
    "measure_embedding",
    "ndcg_at_k",
    "neighborhood_intersection",
    "out_of_sample_consistency",
    "precision_at_k",
    "r_precision",
    "ranked_relevance",
    "ranking_measures",
    "recall_at_k",
    "retrieval_measures",
    "roc",
    "split_points",
    "standard_error",
    "suspicious_labels",
    "true_positive_rate_at",
    "trustworthiness",
    "wilson_interval",
    "with_fewer_tests",
]
