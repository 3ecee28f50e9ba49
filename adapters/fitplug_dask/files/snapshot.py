"""Snapshot: the files as they are before any row is read, checked against the domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from fitplug.counts import WEIGHT, Filters, can_name_columns, suggest_column
from fitplug.domain import OUTSIDE, Attribute, Encoder
from fitplug.errors import DataError, suggest_nearest
from fitplug.files import EncryptedError
from fitplug_dask.encoding import (
    classify_person_type,
    classify_type,
    describe_values,
    encode_text,
    explain_mismatch,
)
from fitplug_dask.files.checked_file import CheckedFile, ParquetLayout
from fitplug_dask.files.header import Header
from fitplug_dask.files.parquet import DAMAGED_FOOTER_FAULT, ENCRYPTED_COLUMNS_FAULT
from fitplug_dask.files.readers import read_header
from fitplug_dask.sources import TEXT_FORMATS, FolderKey, FoundFile, State, StoreError

# Files read at once: local files wait for a processor here, those in a store for the network.
_LOCAL_READERS, _STORE_READERS = 4, 32
_LOCAL_RUN = 32
_DICTIONARY_BYTES = 2**20
_INDEX_BYTES = 2.25  # 18 bits: more entries than a dictionary of 1 MB has


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
        check_all: How all files are checked; by threads of this process if it is left out.

    Returns:
        The files, in the order of `found`.

    Raises:
        DataError: A file is missing, damaged, or of another schema; the first one is named.
    """
    check = partial(
        _check_file, attributes=attributes, person=person, weight=weight, filters=dict(filters)
    )
    files = tuple((check_all or check_on_threads)(check, found))
    _check_person_types(files, person)
    return files


def check_on_threads(check: CheckOne, found: Sequence[FoundFile]) -> Sequence[CheckedFile]:
    """Check files, several at once.

    Raises:
        DataError: As by `check`, for the first file that fails.
    """
    in_store = any(file.location.options is not None for file in found)
    # Local files are so fast that each thread takes many at once.
    threads, run = (_STORE_READERS, 1) if in_store else (_LOCAL_READERS, _LOCAL_RUN)
    runs = [found[start : start + run] for start in range(0, len(found), run)]
    with ThreadPoolExecutor(threads) as readers:
        checked = readers.map(lambda some: [check(file) for file in some], runs)
        return [file for some in checked for file in some]


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


def _check_file(
    found: FoundFile,
    *,
    attributes: Mapping[str, Attribute],
    person: str | None,
    weight: str | None,
    filters: Filters,
) -> CheckedFile:
    """Read the header of one file and check all that is needed of it."""
    (size, stamp), header = read_found_header(found)
    schema = header.schema
    columns: dict[str, Any] = {}
    codes = []
    for name, attribute in attributes.items():
        key = _find_folder_key(found, name, schema.names)
        if key:
            codes.append((name, _encode_folder_key(key, attribute)))
            continue
        columns[name] = _check_column(found, name, attribute, schema)
    left_out = False
    for name, wanted in filters.items():
        key = _find_folder_key(found, name, schema.names)
        if key:
            left_out |= _encode_folder_key(key, wanted, _FILTERS) == OUTSIDE
            continue
        columns[name] = _check_column(found, name, wanted, schema, _FILTERS)
    if weight is not None:
        _check_no_folder_key(found, weight, "weights must be given")
        columns[weight] = _check_column(found, weight, WEIGHT, schema, _WEIGHTS)
    person_type = None
    if person is not None:
        _check_no_folder_key(found, person, "persons must be identified")
        columns[person] = _find_column_type(found, person, schema)
        person_type = _check_person_column(found, person, columns[person])
    layout = _find_layout(found, header, tuple(columns))
    return CheckedFile(
        display_path=found.path,
        location=found.location,
        format=found.format,
        size=size,
        stamp=stamp,
        rows=header.rows,
        exact=header.exact,
        records=header.records,
        columns=tuple(columns),
        dictionaries=tuple(
            name
            for name, arrow_type in columns.items()
            if classify_type(arrow_type) == "strings" and _is_dictionary(layout, name)
        ),
        folder_codes=tuple(codes),
        person=person_type,
        left_out=left_out,
        layout=layout if layout is not None and layout.can_travel() else None,
    )


class _Wording(NamedTuple):
    """How errors name what a column must agree with.

    Attributes:
        expects: The subject and verb of the sentence about what is expected.
        change: What the user may change.
    """

    expects: str
    change: str


_DOMAIN = _Wording("the domain expects", "the domain")
_FILTERS = _Wording("where gives", "where")
_WEIGHTS = _Wording("weights are", "weight")


def _find_folder_key(found: FoundFile, name: str, columns: Sequence[str]) -> FolderKey | None:
    """Return the folder key of this name, if there is one. Raise DataError if it is ambiguous."""
    keys = [key for key in found.keys if key.name == name]
    if keys and name in columns:
        raise DataError(
            f"{found.path}: {name!r} is both a column and a folder name on the path; "
            "rename one of them"
        )
    if len(keys) > 1:
        raise DataError(f"{found.path}: the path has two folders that set {name!r}; keep one")
    return keys[0] if keys else None


def _encode_folder_key(key: FolderKey, attribute: Attribute, wording: _Wording = _DOMAIN) -> int:
    """Return the code of a folder's value. Raise DataError if it is no value of the attribute."""
    code = encode_text(attribute, key.value)
    if code is None:
        raise DataError(
            f"folder {key.folder}: {wording.expects} {describe_values(attribute)} for "
            f"{key.name!r}, which the folder's name does not spell; rename the folder or change "
            f"{wording.change}"
        )
    return code


def _check_no_folder_key(found: FoundFile, name: str, subject: str) -> None:
    """Raise DataError if a folder gives what must be a column."""
    for key in found.keys:
        if key.name == name:
            raise DataError(
                f"folder {key.folder}: {subject} by a column {name!r} of the "
                "files, not by their folders; store it as a column"
            )


def _find_column_type(found: FoundFile, name: str, schema: Any) -> Any:
    """Return the Arrow type of a column. Raise DataError if there is no such column, or two."""
    names: list[str] = schema.names
    if names.count(name) > 1:
        raise DataError(f"{found.path} has two columns {name!r}; rename or drop one")
    if name not in names and found.format in TEXT_FORMATS:
        # If the names were left out, the first line is a person's: it must not be quoted.
        raise DataError(
            f"{found.path} has no column {name!r} on its first line, which must name all columns "
            "with commas between them; check the spelling there, in the domain and of person, "
            "weight and where"
        )
    if name not in names:
        known = {*names, *(key.name for key in found.keys)}
        # The columns of a file made from a table without a header are named by a person's values.
        advice = (
            suggest_nearest(name, sorted(known))
            if can_name_columns(names)
            else suggest_column(name, known)
        )
        raise DataError(f"{found.path} has no column {name!r}; {advice}")
    return schema.field(name).type


def _check_column(
    found: FoundFile, name: str, attribute: Encoder, schema: Any, wording: _Wording = _DOMAIN
) -> Any:
    """Return the Arrow type of a column. Raise DataError if the attribute cannot read it."""
    arrow_type = _find_column_type(found, name, schema)
    if found.format in TEXT_FORMATS:
        return arrow_type
    if why := explain_mismatch(attribute, arrow_type, wording.expects):
        raise DataError(
            f"{found.path}: column {name!r} {why}; convert the column or change {wording.change}"
        )
    return arrow_type


def _check_person_column(found: FoundFile, person: str, arrow_type: Any) -> str:
    """Return what the column of persons holds. Raise DataError if it cannot identify persons."""
    held = classify_person_type(arrow_type)
    if held is None:
        raise DataError(
            f"{found.path}: column {person!r} holds {arrow_type}, but persons are identified by "
            "strings or integers; convert the column"
        )
    return held


def _check_person_types(files: Sequence[CheckedFile], person: str | None) -> None:
    """Raise DataError if persons have several types, since "1" and 1 would be two persons."""
    first: dict[str, str] = {}
    for file in files:
        if file.person is not None and file.person != "null":
            first.setdefault(file.person, file.display_path)
    if len(first) > 1:
        (one, a), (other, b) = first.items()
        raise DataError(
            f"{b}: column {person!r} holds {other}, but {one} in {a}; store persons in one type"
        )


def _find_layout(
    found: FoundFile, header: Header, columns: tuple[str, ...]
) -> ParquetLayout | None:
    """Return where the columns lie if the file is of Parquet. Raise DataError if it is damaged."""
    if header.footer is None:
        return None
    try:
        return ParquetLayout.create(header.footer, columns)
    except EncryptedError:
        fault = ENCRYPTED_COLUMNS_FAULT
    except (ValueError, IndexError):
        fault = DAMAGED_FOOTER_FAULT
    raise DataError(f"{found.path} {fault}")


def _is_dictionary(layout: ParquetLayout | None, name: str) -> bool:
    """Return whether all pages of a column of strings are stored with a dictionary.

    Writers give up on a dictionary of about 1 MB and go on with plain values. If these were read
    as a dictionary, every batch would repeat all distinct values so far.
    """
    if layout is None:
        return False
    position = layout.schema.positions[name]
    return all(
        chunk.dictionary and chunk.plain_bytes <= _DICTIONARY_BYTES + _INDEX_BYTES * chunk.values
        for group in layout.groups
        for chunk in (group.chunks[position],)
    )
