"""Software: the versions of what runs."""

from __future__ import annotations

from importlib.metadata import version

from fitplug.release import list_core_versions

_LIBRARIES = ("opendp", "dask", "pyarrow")


def list_versions() -> dict[str, str]:
    """Return the version of Python and of each library that a release is made with, by name."""
    return list_core_versions() | {name: version(name) for name in _LIBRARIES}
