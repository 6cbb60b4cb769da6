"""The estimators that a test module tries: those of the registry, with special parameters for some.

A new estimator is tried with its default parameters wherever it belongs, without being named here
or there. It is named only where its default parameters will not do, or where it has several ways of
working.
"""

import inspect

import nearfar
from nearfar.registry import entries


def classes(**query):
    """The classes of the entries with the given properties, see `nearfar.registry.entries`."""
    return [getattr(nearfar, entry.name) for entry in entries(**query)]


def instance(cls, **parameters):
    """An estimator with those of the parameters that its class has."""
    known = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in parameters.items() if name in known})


def instances(special=(), *, common=None, **query):
    """One or more unfitted estimators of each class, in the order of the registry.

    `special` are the estimators that stand for their classes. Every other class has one estimator,
    with the parameters of `common` that it knows, and the default ones else.
    """
    given = {}
    for estimator in special:
        given.setdefault(type(estimator), []).append(estimator)
    found = classes(**query)
    strange = [cls.__name__ for cls in given if cls not in found]
    assert not strange, f"{strange} are not among the registered classes with {query}"
    return [
        estimator
        for cls in found
        for estimator in given.get(cls) or [instance(cls, **(common or {}))]
    ]
