"""Snapshot: the files as they stand before any row is read, checked against the domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from fitplug.counts import WEIGHT, Filters, are_names, hint
from fitplug.domain import OUTSIDE, Attribute
from fitplug.errors import DataError, nearest
from fitplug.files import Footer
from fitplug_dask.codes import kind, mismatch
from fitplug_dask.formats import TEXTS, Format
from fitplug_dask.headers import Header, read_header
from fitplug_dask.persons import person_kind
from fitplug_dask.places import Place
from fitplug_dask.sources import Found, Key
from fitplug_dask.texts import code_of_text, expected

_READERS, _STORE_READERS = 4, 16  # at once: what is near costs time here, what is far elsewhere
_DICTIONARY_BYTES = 2**20
_INDEX_BYTES = 2.25  # 18 bits: more entries than a dictionary of 1 MB has


@dataclass(frozen=True)
class File:
    """A checked file.

    shown: its path as given, for messages; place: where it is opened; size, stamp: bytes, and
    what the file system or store tells of the content; rows: rows of each unit (row group, record
    batch or whole file), by the footer if `exact`, else guesses above 0; columns: those to read, of
    attributes, filters, weights and persons; dictionaries: those among them to read as
    dictionaries; keys: (attribute, code) of those its folders hold; records: rows in all, None if
    only reading would tell; person: what the column that identifies persons holds, if there is one.
    left_out: whether its folders say that the filters let none of its rows through.
    """

    shown: str
    place: Place
    format: Format
    size: int
    stamp: str
    rows: tuple[int, ...] = field(repr=False)
    exact: bool
    records: int | None = field(repr=False)
    columns: tuple[str, ...]
    dictionaries: tuple[str, ...]
    keys: tuple[tuple[str, int], ...]
    person: str | None = None
    left_out: bool = False

    def unchanged(self) -> bool:
        """Whether the file is still that of the snapshot. Raises what stores raise."""
        return self.place.state() == (self.size, self.stamp)


def take_snapshot(
    found: Sequence[Found],
    attributes: Mapping[str, Attribute],
    person: str | None = None,
    *,
    weight: str | None = None,
    filters: Filters = MappingProxyType({}),
) -> tuple[File, ...]:
    """Footers and schemas of all files; no row is read.

    attributes: those that will be counted, each a column or a folder key of every file. person: a
    column of every file, of strings in all or of integers in all; weight: one of integers;
    filters: each a column or a folder key, too. Raises DataError naming the first file that is
    missing, damaged, or of another schema.
    """
    far = any(file.place.options is not None for file in found)
    with ThreadPoolExecutor(_STORE_READERS if far else _READERS) as readers:
        files = tuple(
            readers.map(lambda file: _file(file, attributes, person, weight, filters), found)
        )
    _check_persons(files, person)
    return files


def _file(
    found: Found,
    attributes: Mapping[str, Attribute],
    person: str | None,
    weight: str | None,
    filters: Filters,
) -> File:
    (size, stamp), header = header_of(found)
    schema = header.schema
    columns: dict[str, Any] = {}
    codes = []
    for name, attribute in attributes.items():
        key = _key(found, name, schema.names)
        if key:
            codes.append((name, _key_code(key, attribute)))
            continue
        columns[name] = _column_type(found, name, attribute, schema)
    left_out = False
    for name, wanted in filters.items():
        key = _key(found, name, schema.names)
        if key:
            left_out |= _key_code(key, wanted, _FILTERS) == OUTSIDE
            continue
        columns[name] = _column_type(found, name, wanted, schema, _FILTERS)
    if weight is not None:
        _check_no_key(found, weight, "weights must be told")
        columns[weight] = _column_type(found, weight, cast(Attribute, WEIGHT), schema, _WEIGHTS)
    persons = None
    if person is not None:
        _check_no_key(found, person, "persons must be told apart")
        columns[person] = _named_type(found, person, schema)
        persons = _person_kind(found, person, columns[person])
    return File(
        shown=found.path,
        place=found.place,
        format=found.format,
        size=size,
        stamp=stamp,
        rows=header.rows,
        exact=header.exact,
        records=header.records,
        columns=tuple(columns),
        dictionaries=tuple(
            name
            for name, held in columns.items()
            if kind(held) == "strings" and _is_dictionary(header.footer, name)
        ),
        keys=tuple(codes),
        person=persons,
        left_out=left_out,
    )


def _check_no_key(found: Found, name: str, told: str) -> None:
    for key in found.keys:
        if key.name == name:
            raise DataError(
                f"folder {key.folder}: {told} by a column {name!r} of the "
                "files, not by their folders; store it as a column"
            )


def _person_kind(found: Found, person: str, arrow_type: Any) -> str:
    held = person_kind(arrow_type)
    if held is None:
        raise DataError(
            f"{found.path}: column {person!r} holds {arrow_type}, but persons are told apart by "
            "strings or integers; convert the column"
        )
    return held


def _check_persons(files: Sequence[File], person: str | None) -> None:
    """Raise DataError if persons are stored in different kinds: "1" and 1 would be two persons."""
    first: dict[str, str] = {}
    for file in files:
        if file.person is not None and file.person != "null":
            first.setdefault(file.person, file.shown)
    if len(first) > 1:
        (one, a), (other, b) = first.items()
        raise DataError(
            f"{b}: column {person!r} holds {other}, but {one} in {a}; store persons in one type"
        )


def _key(found: Found, name: str, columns: Sequence[str]) -> Key | None:
    keys = [key for key in found.keys if key.name == name]
    if keys and name in columns:
        raise DataError(
            f"{found.path}: {name!r} is both a column and a folder name on the path; "
            "rename one of them"
        )
    if len(keys) > 1:
        raise DataError(f"{found.path}: the path has two folders that set {name!r}; keep one")
    return keys[0] if keys else None


class _Says(NamedTuple):
    """What says which values a column holds, for errors: as a subject, and what one may change."""

    expects: str
    change: str


_DOMAIN = _Says("the domain expects", "the domain")
_FILTERS = _Says("where gives", "where")
_WEIGHTS = _Says("weights are", "weight")


def _key_code(key: Key, attribute: Attribute, says: _Says = _DOMAIN) -> int:
    code = code_of_text(attribute, key.value)
    if code is None:
        raise DataError(
            f"folder {key.folder}: {says.expects} {expected(attribute)} for {key.name!r}, "
            f"which the folder's name does not spell; rename the folder or change {says.change}"
        )
    return code


def header_of(found: Found) -> tuple[tuple[int, str], Header]:
    """The file's state, taken before it is read, and its header."""
    state: tuple[int, str] = (0, "")
    with suppress(Exception):  # then its header cannot be read either, which says why
        state = found.place.state()
    header = read_header(found.place, found.format, state[0])
    if isinstance(header, str):
        raise DataError(f"{found.path} {header}")
    return state, header


def _named_type(found: Found, name: str, schema: Any) -> Any:
    names: list[str] = schema.names
    if names.count(name) > 1:
        raise DataError(f"{found.path} has two columns {name!r}; rename or drop one")
    if name not in names and found.format in TEXTS:
        # If the names were left out, the first line is a person's: it must not be quoted.
        raise DataError(
            f"{found.path} has no column {name!r} on its first line, which must name all columns "
            "with commas between them; check the spelling there, in the domain and of person, "
            "weight and where"
        )
    if name not in names:
        known = {*names, *(key.name for key in found.keys)}
        # A file that was made of a table without a header is named by a person's values.
        told = nearest(name, sorted(known)) if are_names(names) else hint(name, known)
        raise DataError(f"{found.path} has no column {name!r}; {told}")
    return schema.field(name).type


def _column_type(
    found: Found, name: str, attribute: Attribute, schema: Any, says: _Says = _DOMAIN
) -> Any:
    arrow_type = _named_type(found, name, schema)
    if found.format in TEXTS:
        return arrow_type
    if why := mismatch(attribute, arrow_type, says.expects):
        raise DataError(
            f"{found.path}: column {name!r} {why}; convert the column or change {says.change}"
        )
    return arrow_type


def _is_dictionary(footer: Footer | None, name: str) -> bool:
    """Whether a column of strings is stored with a dictionary all through.

    Writers give up on a dictionary of about 1 MB and go on with plain values. To read those as a
    dictionary would repeat, with every batch, all distinct values so far.
    """
    if footer is None:
        return False
    at = [column.path for column in footer.columns].index(name)
    return all(
        group[at].dictionary
        and group[at].plain_bytes <= _DICTIONARY_BYTES + _INDEX_BYTES * group[at].values
        for group in footer.chunks
    )
