"""Snapshot: the files as they are before any row is read, checked against the domain."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from fitplug.counts import Filters
from fitplug.domain import Attribute
from fitplug.errors import DataError
from fitplug_dask.files.checked_file import CheckedFile
from fitplug_dask.files.column_checks import check_file, check_person_types
from fitplug_dask.files.header import Header
from fitplug_dask.files.readers import read_header
from fitplug_dask.files.wanted_columns import PLAIN_RULES, ColumnRules, WantedColumns
from fitplug_dask.sources import FoundFile, State, StoreError

_READERS = 32
"""Files of a store, or of a slow file system, that are read at once."""

_FIRST_RUN, _RUN = 32, 8
_SLOW_SECONDS = 0.002
"""Local files that take longer each wait for a disk or a network, and not for the interpreter."""


CheckOne: TypeAlias = Callable[[FoundFile], CheckedFile]
"""Reads the footer of a file and checks it."""

CheckAll: TypeAlias = Callable[[CheckOne, Sequence[FoundFile]], Sequence[CheckedFile]]
"""Checks many files in their order. It raises what the check of the first bad file raises."""


def take_snapshot(
    found: Sequence[FoundFile],
    attributes: Mapping[str, Attribute],
    person: str | None = None,
    *,
    weight: str | None = None,
    filters: Filters = MappingProxyType({}),
    rules: ColumnRules = PLAIN_RULES,
    check_all: CheckAll | None = None,
) -> tuple[CheckedFile, ...]:
    """Read the footers and schemas of all files and check them; no row is read.

    Args:
        found: The files.
        attributes: The attributes to count by name. Each is a column or a folder key of every
            file.
        person: A column of every file that identifies persons, of one type in all files.
        weight: A column of integers of every file.
        filters: What rows must hold. Each name is a column or a folder key of every file.
        rules: How columns are read that no type alone says how to read.
        check_all: How all files are checked; by threads of this process if it is left out.

    Returns:
        The files, in the order of `found`.

    Raises:
        DataError: A file is missing, damaged, or of another schema; the first one is named.
    """
    wanted = WantedColumns(attributes, person, weight, filters, rules)
    files = tuple((check_all or check_on_threads)(partial(_check_file, wanted), found))
    check_person_types(files, person)
    return files


def check_on_threads(check: CheckOne, found: Sequence[FoundFile]) -> Sequence[CheckedFile]:
    """Check files, several at once.

    Raises:
        DataError: As by `check`, for the first file that fails.
    """
    # Python threads that only make calls to the operating system are slower than one thread.
    alone = 0 if any(file.location.options is not None for file in found) else _FIRST_RUN
    start = time.perf_counter()
    checked = [check(file) for file in found[:alone]]
    if alone and time.perf_counter() - start < _SLOW_SECONDS * len(checked):
        return checked + [check(file) for file in found[alone:]]
    run = _RUN if alone else 1
    runs = [found[i : i + run] for i in range(alone, len(found), run)]
    with ThreadPoolExecutor(_READERS) as readers:
        for some in readers.map(lambda some: [check(file) for file in some], runs):
            checked += some
    return checked


def read_found_header(found: FoundFile) -> tuple[State, Header]:
    """Return the state of a file, taken before the file is read, and its header.

    Returns:
        The size and the stamp, and the header.

    Raises:
        DataError: The header cannot be read.
    """
    location = found.location
    fault = ""
    try:
        state = location.listed or location.read_state()
    except StoreError as error:
        fault = str(error)
    except FileNotFoundError:
        fault = "does not exist; check the path"
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except ImportError:
        fault = "cannot be opened, as a package for its store is missing; install it"
    if fault:
        raise DataError(f"{found.path} {fault}")
    header = read_header(location, found.format, state)
    if isinstance(header, str):
        raise DataError(f"{found.path} {header}")
    return state, header


def _check_file(wanted: WantedColumns, found: FoundFile) -> CheckedFile:
    """Read the header of one file and check all that is needed of it."""
    state, header = read_found_header(found)
    return check_file(found, state, header, wanted)
