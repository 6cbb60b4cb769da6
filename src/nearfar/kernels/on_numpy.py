"""The kernels on NumPy arrays: blocked BLAS, sparse products, one thread per core.

This module lists them; they are written in modules of one idea each. How work is cut into blocks,
and why results do not depend on threads, is explained in `nearfar.kernels.parallel`.
"""

from __future__ import annotations

from nearfar.kernels.numpy_arrays import (
    arange,
    compact,
    concatenate,
    cumsum,
    detached,
    double,
    first_equal,
    flatnonzero,
    index,
    like,
    repeat,
    searchsorted,
    segment_max,
    segment_sum,
    single,
    smallest,
    sqrt,
    to_host,
    unique,
)
from nearfar.kernels.numpy_edges import (
    apply,
    apply_centred,
    edge_products,
    edge_scatter,
    gram,
    group_scatter,
    image_squares,
    laplacian_matmul,
    sq_lengths,
)
from nearfar.kernels.numpy_impostors import (
    cross_impostor_pairs,
    impostor_pairs,
    mutual_impostor_pairs,
)
from nearfar.kernels.numpy_neighbors import (
    hinge_sums,
    kth_squares,
    nearest,
    nearest_in_class,
    nearest_of_classes,
    neighbor_laplacian,
    searches_are_cheap,
)
from nearfar.kernels.numpy_regression import kernel_regression
from nearfar.kernels.numpy_similarities import (
    local_laplacian,
    similarities,
    softmax_neighbors,
)

__all__ = [
    "apply",
    "apply_centred",
    "arange",
    "compact",
    "concatenate",
    "cross_impostor_pairs",
    "cumsum",
    "detached",
    "double",
    "edge_products",
    "edge_scatter",
    "first_equal",
    "flatnonzero",
    "gram",
    "group_scatter",
    "hinge_sums",
    "image_squares",
    "impostor_pairs",
    "index",
    "kernel_regression",
    "kth_squares",
    "laplacian_matmul",
    "like",
    "local_laplacian",
    "mutual_impostor_pairs",
    "nearest",
    "nearest_in_class",
    "nearest_of_classes",
    "neighbor_laplacian",
    "repeat",
    "searches_are_cheap",
    "searchsorted",
    "segment_max",
    "segment_sum",
    "similarities",
    "single",
    "smallest",
    "softmax_neighbors",
    "sq_lengths",
    "sqrt",
    "to_host",
    "unique",
]
