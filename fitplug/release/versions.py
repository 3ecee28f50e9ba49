"""Versions of the software that a release was made with."""

from __future__ import annotations

import platform

import numpy as np
import scipy


def list_core_versions() -> dict[str, str]:
    """List the versions of Python and of the libraries that estimates are computed with."""
    from fitplug import __version__  # imported here, as the package imports this module

    return {
        "python": platform.python_version(),
        "fitplug": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
