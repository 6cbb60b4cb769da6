"""Which versions computed something."""

from __future__ import annotations

import platform

import numpy
import scipy
import sklearn

from nearfar import __version__


def versions() -> dict[str, str]:
    """nearfar, what it needs, Python and the system."""
    return {
        "nearfar": __version__,
        "Python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }
