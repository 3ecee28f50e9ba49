"""Entry points: how the functions of adapters are found when they are called."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "fitplug.adapters"

_EXTRAS = {
    "count": "dask",
    "count_in_database": "ibis",
    "preview": "dask",
    "release_tables": "opendp",
    "release_source": "dask,opendp",
    "release_from_database": "ibis,opendp",
    "begin_series": "dask,opendp",
    "open_series": "dask,opendp",
}
"""The extras of this package whose libraries each function of an adapter needs."""


def call_adapter(name: str, *arguments: Any, **options: Any) -> Any:
    """Call the function that an adapter provides under a name.

    Raises:
        ImportError: No adapter provides it, or a library that it needs is not installed.
    """
    advice = f'Install it with: pip install "fitplug[{_EXTRAS[name]}]"'
    try:
        found = _find_entry_point(name)
    except LookupError:
        raise ImportError(f"fitplug.{name} is not installed. {advice}") from None
    try:
        return found.load()(*arguments, **options)
    except ModuleNotFoundError as error:
        library = (error.name or "a missing library").partition(".")[0]
    raise ImportError(f"fitplug.{name} needs {library}. {advice}")


@cache
def _find_entry_point(name: str) -> EntryPoint:
    """Find the entry point of this name, once: a search reads a file of every installed package.

    Raises:
        LookupError: There is none. It may be installed later, so a further call searches again.
    """
    for found in entry_points(group=GROUP, name=name):
        return found
    raise LookupError
