"""The small classification sets that come with scikit-learn."""

from __future__ import annotations

from nearfar.datasets.table import Table, suggest
from nearfar.errors import InvalidInputError

BUILTIN_NAMES = ("breast_cancer", "digits", "iris", "wine")


def load_builtin(name: str) -> Table:
    """Load digits, wine, iris or breast_cancer.

    Parameters
    ----------
    name : str
        One of `BUILTIN_NAMES`.

    Returns
    -------
    table : Table
        float64 points with integer labels, in scikit-learn's order.
    """
    if name not in BUILTIN_NAMES:
        raise InvalidInputError(
            f"there is no built-in table {name!r}. {suggest(name, BUILTIN_NAMES)}"
        )
    import sklearn.datasets

    data = getattr(sklearn.datasets, f"load_{name}")()
    names = tuple(str(feature) for feature in data.feature_names)
    return Table(X=data.data, y=data.target, feature_names=names, target_name="target")
