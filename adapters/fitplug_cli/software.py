"""Software: the versions of what runs, and which parts of fitplug are compiled.

The loops that count rows are compiled where fitplug was installed from a wheel, or with a C
compiler. Without them NumPy does the same, with the same results but more slowly.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fitplug.release import list_core_versions

_LIBRARIES = ("opendp", "dask", "pyarrow")


def find_compiled() -> dict[str, bool]:
    """Return whether each part of fitplug that can be compiled is, in this process, by its module.

    This is what was imported, not what is installed: a compiled file that cannot be loaded here
    does not count.
    """
    from fitplug_dask.loops import COMPILED  # imported here, as Dask takes long to import

    return {"fitplug_dask.compiled_loops": COMPILED}


def print_version() -> None:
    """Print the version of fitplug, and which parts are compiled."""
    print(f"fitplug {version('fitplug')}")
    for module, is_compiled in find_compiled().items():
        print(f"{module}: {'compiled' if is_compiled else 'not compiled'}")


def describe_software() -> dict[str, Any]:
    """Describe the software that a release is made with.

    Returns:
        "versions": the version of Python and of each library, by name; "compiled": what
        `find_compiled` returns.
    """
    versions = list_core_versions() | {name: version(name) for name in _LIBRARIES}
    return {"versions": versions, "compiled": find_compiled()}
