"""Dask arrays that tests share."""

import dask.array as da
import numpy as np


def untouchable(shape=(40, 3)):
    """An array whose blocks raise when they are computed."""

    def fail(_):
        raise AssertionError("a block was computed")

    return da.zeros(shape, chunks=(10, shape[1])).map_blocks(
        fail, dtype=np.float64, meta=np.empty((0, 0))
    )
