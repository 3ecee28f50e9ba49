"""Snapshot: the state of all files before any row is read, checked against the domain.

To add a format, write a module like `parquet`, and add an entry to each table here.
"""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from fitplug.counts import Filters
from fitplug.domain import Attribute
from fitplug.errors import DataError
from fitplug_dask.encoding import classify_type
from fitplug_dask.files.arrow_ipc import END_OF_STREAM, open_arrow_row_groups, read_arrow_header
from fitplug_dask.files.checked_file import (
    PLAIN_RULES,
    Batches,
    CheckedFile,
    ColumnRules,
    DamagedFileError,
    Header,
    ReadRowGroup,
)
from fitplug_dask.files.column_checks import WantedColumns, check_file
from fitplug_dask.files.csv_text import read_csv, read_csv_header
from fitplug_dask.files.memory_tables import (
    compute_partition,
    pull_stream,
    read_library_header,
    scan_fragment,
)
from fitplug_dask.files.parquet import open_parquet_row_groups, read_parquet_header
from fitplug_dask.sources import (
    LIBRARY_FORMATS,
    TEXT_FORMATS,
    Format,
    Location,
    SourceFile,
    State,
    StoreError,
)

_GONE = "does not exist. Check the path."

_READERS = 32
"""The number of files in a store, or on a slow file system, that are read at once."""

_FIRST_RUN, _RUN = 32, 8
_SLOW_SECONDS = 0.002
"""If local files take longer than this each, they wait for a disk or a network rather than for the
interpreter."""


CheckOne: TypeAlias = Callable[[SourceFile], CheckedFile]
"""Reads the footer of a file and checks it."""

CheckAll: TypeAlias = Callable[[CheckOne, Sequence[SourceFile]], Sequence[CheckedFile]]
"""Checks many files, and returns them in their order. It raises the error of the first bad file."""


def read_header(location: Location, file_format: Format, state: State) -> Header | str:
    """Return the header of a file in a known state, or a message about what is wrong with the file.

    The message quotes nothing of the file's content.
    """
    try:
        if not state[0]:
            return _explain_unreadable(location, file_format, state)
        header = _READ_HEADER[file_format](location, state)
        if header.schema is not None:
            _check_schema(header.schema)
        return header
    except (DamagedFileError, StoreError) as error:
        return str(error)
    except FileNotFoundError:
        return _GONE
    except Exception:
        pass
    # The reader's message may quote the file's content, so it is not used.
    return _explain_unreadable(location, file_format, state)


_CHECKED: deque[Any] = deque(maxlen=8)
"""The schemas that were checked last, since most files have the schema of the file before."""


def _check_schema(schema: Any) -> None:
    """Raise now, rather than at first use, if names of columns or time zones are damaged."""
    if any(schema.equals(checked, check_metadata=True) for checked in tuple(_CHECKED)):
        return
    _ = schema.names, str(schema), [classify_type(arrow_type) for arrow_type in schema.types]
    _CHECKED.appendleft(schema)


def open_file(file: CheckedFile) -> AbstractContextManager[ReadRowGroup]:
    """Open a file of the snapshot for reading its columns."""
    stored = file.name_stored()
    if file.format is Format.PARQUET:
        return open_parquet_row_groups(stored)
    if file.format is Format.ARROW:
        return open_arrow_row_groups(stored)
    return nullcontext(partial(_READ[file.format], stored))


def describe_damage(file: CheckedFile, row_group: int, what: str = "cannot be read") -> str:
    """Return sentences that name the file and the damaged row group, and advise the user."""
    if file.format in TEXT_FORMATS:
        return (
            f"{file.display_path} is not valid CSV to its end: each row needs one value per "
            "column, and quotes must close. Write the file again."
        )
    if file.format in LIBRARY_FORMATS:
        return (
            f"{file.display_path} {what}. Check the code that produces its rows, and count again."
        )
    name = "row group" if file.format is Format.PARQUET else "record batch"
    return (
        f"{file.display_path}: {name} {row_group} {what}, so the file is damaged. Write it again."
    )


_READ_HEADER: dict[Format, Callable[[Location, State], Header]] = {
    Format.PARQUET: read_parquet_header,
    Format.ARROW: read_arrow_header,
    Format.CSV: read_csv_header,
    Format.CSV_GZ: partial(read_csv_header, zipped=True),
    **dict.fromkeys(LIBRARY_FORMATS, read_library_header),
}

_READ: dict[Format, Callable[[CheckedFile, int, int], Batches]] = {
    Format.CSV: read_csv,
    Format.CSV_GZ: read_csv,
    Format.STREAM: pull_stream,
    Format.FRAGMENT: scan_fragment,
    Format.DELAYED: compute_partition,
}

# The name of each format, the first and last bytes of its files, and the fault if both are there.
_MAGIC = {
    Format.PARQUET: ("a Parquet", b"PAR1", b"PAR1", "has a damaged footer. Write it again."),
    Format.ARROW: ("an Arrow", b"ARRO", b"ROW1", "has a damaged footer or schema. Write it again."),
    Format.CSV: ("a CSV", b"", b"", "has no readable line of column names. Add this line."),
    Format.CSV_GZ: ("a gzipped CSV", b"\x1f\x8b", b"", "is damaged or truncated. Write it again."),
}


def _explain_unreadable(location: Location, file_format: Format, state: State) -> str:
    """Explain from a file's size and its first and last four bytes why its header is unreadable."""
    if file_format in LIBRARY_FORMATS:
        return "cannot be read. Check the code that produces its rows."
    try:
        with location.open(sequential=False, state=state) as file:
            head = file.read(4)
            size = file.seek(0, io.SEEK_END)
            file.seek(max(0, size - 4))
            tail = file.read(4)
    except FileNotFoundError:
        return _GONE
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except StoreError as error:
        return str(error)
    called, start, end, fault = _MAGIC[file_format]
    if not size:
        return "is empty (0 bytes). Write it again or remove it."
    if file_format is Format.PARQUET and b"PARE" in (head, tail):
        return "is encrypted, and fitplug cannot decrypt Parquet. Store it unencrypted."
    if file_format is Format.ARROW and head == b"FEA1":
        return "is Feather version 1. Write it again as version 2."
    if file_format is Format.ARROW and head == END_OF_STREAM[:4]:
        return fault
    if not head.startswith(start):
        return f"is not {called} file. Convert it to Parquet, .arrow or .csv, or remove it."
    return "is truncated. Write it again." if not tail.endswith(end) else fault


def take_snapshot(
    sources: Sequence[SourceFile],
    attributes: Mapping[str, Attribute],
    person: tuple[str, ...] = (),
    *,
    weight: str | None = None,
    filters: Filters = MappingProxyType({}),
    rules: ColumnRules = PLAIN_RULES,
    check_all: CheckAll | None = None,
) -> tuple[CheckedFile, ...]:
    """Read the headers of all files and check them, without reading rows.

    Args:
        sources: The files.
        attributes: The attributes to count by name. Each is a column or a folder key of every
            file.
        person: Columns that together identify persons. Each has the same type in all files.
        weight: A column of integers that every file has.
        filters: The values that rows must have. Each name is a column or a folder key of every
            file.
        rules: The caller's rules for reading columns.
        check_all: How to check all files; by threads of this process if None.

    Returns:
        The files, in the order of `sources`.

    Raises:
        DataError: A file is missing, damaged, or of another schema; the first one is named.
    """
    wanted = WantedColumns(attributes, person, weight, filters, rules)
    wanted.encode_folders(sources)
    files = tuple((check_all or check_on_threads)(partial(_check_file, wanted), sources))
    _check_person_types(files)
    return files


def _check_person_types(files: Sequence[CheckedFile]) -> None:
    """Raise DataError if person identifiers have several types: "1" and 1 would be two persons."""
    first: dict[str, tuple[str, str]] = {}
    for file in files:
        for name, kind in file.person_types:
            if kind in (None, "null"):
                continue
            one, path = first.setdefault(name, (kind, file.display_path))
            if one != kind:
                raise DataError(
                    f"{file.display_path}: column {name!r} holds {kind}, but {one} in {path}. "
                    "Store person identifiers as one type in all files."
                )


def check_on_threads(check: CheckOne, sources: Sequence[SourceFile]) -> Sequence[CheckedFile]:
    """Check files, several at once if they are slow.

    Raises:
        DataError: The error of `check` for the first file that fails.
    """
    # For calls to the operating system that return at once, several threads are slower than one.
    alone = 0 if any(file.location.options is not None for file in sources) else _FIRST_RUN
    start = time.perf_counter()
    checked = [check(file) for file in sources[:alone]]
    if alone and time.perf_counter() - start < _SLOW_SECONDS * len(checked):
        return checked + [check(file) for file in sources[alone:]]
    run = _RUN if alone else 1
    runs = [sources[i : i + run] for i in range(alone, len(sources), run)]
    with ThreadPoolExecutor(_READERS) as readers:
        for some in readers.map(lambda some: [check(file) for file in some], runs):
            checked += some
    return checked


def read_source_header(source: SourceFile) -> tuple[State, Header]:
    """Return the state of a file before it is read, and its header.

    Returns:
        The size and the stamp, and the header.

    Raises:
        DataError: The header cannot be read.
    """
    location = source.location
    fault = ""
    try:
        state = location.listed or location.read_state()
    except StoreError as error:
        fault = str(error)
    except FileNotFoundError:
        fault = _GONE
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except ImportError:
        fault = "cannot be opened, because a package for its store is not installed. Install it."
    if fault:
        raise DataError(f"{source.path} {fault}")
    header = read_header(location, source.format, state)
    if isinstance(header, str):
        raise DataError(f"{source.path} {header}")
    return state, header


def _check_file(wanted: WantedColumns, source: SourceFile) -> CheckedFile:
    """Read the header of one file, and check that the file has all that the count needs."""
    state, header = read_source_header(source)
    return check_file(source, state, header, wanted)
