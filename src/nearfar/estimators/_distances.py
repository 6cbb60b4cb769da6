"""Learned distances as functions of two vectors, for other libraries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidInputError
from nearfar.estimators._deploy import compiled_distance

Vector = NDArray[np.float64]


class Distance:
    """A learned distance as a function of two vectors; it can be pickled."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} between vectors of {self._n_features} features>"

    def __call__(self, u: Any, v: Any, squared: bool = False) -> float:
        """The distance between two vectors of numbers of any type, or its square."""
        first, second = (np.asarray(x, dtype=np.float64) for x in (u, v))
        expected = (self._n_features,)
        if first.shape != expected or second.shape != expected:
            raise InvalidInputError(
                f"the metric compares two vectors of {expected[0]} features; got shapes"
                f" {first.shape} and {second.shape}. For many points, take pair_distance."
            )
        difference = self._image_difference(first, second)
        square = float(np.vecdot(difference, difference))
        return square if squared else square**0.5

    @property
    def _n_features(self) -> int:
        raise NotImplementedError

    def _image_difference(self, u: Vector, v: Vector) -> Vector:
        """The image of u minus that of v."""
        raise NotImplementedError

    @property
    def _numba_type_(self) -> Any:
        """What numba asks of an argument of compiled code, such as that of pynndescent and umap."""
        raise TypeError(  # numba hides a ValueError
            f"code that numba compiles cannot call a {type(self).__name__}; it was given one as"
            " metric. Give it the images transform(X), with metric='euclidean'."
        )


@dataclass(frozen=True, eq=False, repr=False)  # as functions, equal only to itself
class LinearDistance(Distance):
    """‖L(u − v)‖."""

    components: NDArray[np.float64]

    @property
    def _n_features(self) -> int:
        return int(self.components.shape[1])

    def _image_difference(self, u: Vector, v: Vector) -> Vector:
        # Row by row: the digits of a matrix product depend on the threads of BLAS.
        images: Vector = np.vecdot(self.components, u - v)
        return images

    @property
    def _numba_type_(self) -> Any:
        from numba import typeof

        return typeof(self._compiled)

    @cached_property
    def _compiled(self) -> Any:
        return compiled_distance(self.components)

    def __getstate__(self) -> dict[str, Any]:
        return {"components": self.components}  # compiled again where it is needed
