"""What the docstring of an estimator says of its parameters and attributes."""

import inspect
import re

# Lines of a numpydoc section such as `tol : float, default=1e-3`.
DEFAULT = re.compile(r"^(\w+) : .*default=(.+)$", re.MULTILINE)
FITTED = re.compile(r"^(\w+_) : ", re.MULTILINE)


def documented_defaults(cls):
    """The defaults of the section `Parameters`: values, not their spelling."""
    section = inspect.getdoc(cls).partition("Parameters\n---")[2].partition("\nAttributes\n---")[0]
    return {name: eval(default, {}) for name, default in DEFAULT.findall(section)}


def documented_attributes(cls):
    """The names in the section `Attributes`."""
    section = inspect.getdoc(cls).partition("\nAttributes\n---")[2].partition("\nNotes\n---")[0]
    return set(FITTED.findall(section))


def fitted_attributes(model):
    """The names of what a fit has left behind."""
    return {name for name in vars(model) if name.endswith("_")}
