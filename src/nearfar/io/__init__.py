"""Model files: plain arrays and one JSON document in a zip. Nothing in them can run.

::

    model.nearfar (zip, members stored uncompressed)
    ├── model.json         format, versions, class name, parameters, fitted attributes
    └── <attribute>.npy    one member for each array; ``numpy.load`` opens them too. An estimator
                           inside another has its name in front: ``metric_.components_.npy``

JSON holds None, booleans, strings, integers, finite floats and lists as they are. Everything else
is an object with one key that starts with ``$``:

=====================  =============================================================
``$array``             the name of a ``.npy`` member
``$objects``           an object array of plain values (feature names, classes)
``$scalar``            a NumPy scalar
``$float``             nan, inf or -inf
``$tuple`` ``$path``   a tuple, a path
``$dict``              a dict whose keys are not plain strings, as [key, value] pairs
``$graph``             a `NeighborhoodGraph`, field by field
``$model``             another estimator of nearfar, fitted or not: class, parameters, attributes
``$frozen``            the same in scikit-learn's ``FrozenEstimator``
=====================  =============================================================

A pipeline is a document of class "Pipeline" with its steps, as [name, step] pairs. A step is an
estimator of nearfar, or one of a few transformers of scikit-learn, of which the file holds class,
parameters, and the arrays by which it maps points; their names are fixed here.
"""

from nearfar.io.archive import load, read_provenance, save
from nearfar.io.classes import MODEL_CLASSES as MODEL_CLASSES
from nearfar.io.classes import TRUSTED_TYPES

__all__ = ["TRUSTED_TYPES", "load", "read_provenance", "save"]
