"""Column checks: which columns a count reads, whether a file has them, and how they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fitplug.counts import WEIGHT, Filters, can_name_columns, find_separator, suggest_column
from fitplug.domain import OUTSIDE, TYPE_NAMES, Attribute, Encoder, get_codec
from fitplug.errors import DataError, suggest_nearest
from fitplug_dask.encoding import (
    classify_person_type,
    classify_type,
    encode_folder_texts,
    explain_forms,
    explain_mismatch,
    explain_person_mismatch,
    needs_conversion,
)
from fitplug_dask.files.checked_file import (
    Adaptation,
    CheckedFile,
    ColumnRules,
    Header,
    RepeatedKey,
    find_stored_column,
    lacks_numbers,
)
from fitplug_dask.sources import TEXT_FORMATS, FolderKey, Format, SourceFile

_MOST_SCHEMAS = 8


@dataclass(frozen=True)
class WantedColumns:
    """The columns that a count reads.

    Attributes:
        attributes: The attributes that are counted, by name.
        person: The columns that identify persons, if there are any.
        weight: The column of weights, if there is one.
        filters: The values that rows must have.
        rules: The caller's rules for reading columns.
        checks: The results for the last few headers of each folder, so that they are not checked
            again.
        codes: By attribute or filter, the codes of its texts in folder names; None for text that is
            not a value.
    """

    attributes: Mapping[str, Attribute]
    person: tuple[str, ...]
    weight: str | None
    filters: Filters
    rules: ColumnRules
    checks: dict[Any, list[tuple[Header, dict[str, Any]]]] = field(
        default_factory=dict, repr=False, compare=False
    )
    codes: dict[tuple[str, _Wording], dict[str | None, int | None]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def encode_folders(self, files: Iterable[SourceFile]) -> None:
        """Encode the texts in the folder names of all files at once, since each call is slow."""
        texts: dict[str, dict[str | None, None]] = {}
        for key in {key for keys in {file.keys for file in files} for key in keys}:
            texts.setdefault(key.name, {})[key.value] = None
        for columns, wording in ((self.attributes, _DOMAIN), (self.filters, _FILTERS)):
            for name, attribute in columns.items():
                spelled = list(texts.get(self.rules.columns.get(name, name), ()))
                codes = encode_folder_texts(get_codec(attribute), spelled)
                self.codes[name, wording] = dict(zip(spelled, codes, strict=True))


class _Wording(NamedTuple):
    """How errors name the declaration that a column disagrees with.

    Attributes:
        expects: The subject and verb of the sentence about what is expected.
        change: The declaration that the user may change.
    """

    expects: str
    change: str


_DOMAIN = _Wording("the domain expects", "the domain")
_FILTERS = _Wording("'where' gives", "'where'")
_WEIGHTS = _Wording("weights are", "'weight'")


def check_file(
    file: SourceFile, state: tuple[int, str], header: Header, wanted: WantedColumns
) -> CheckedFile:
    """Check that a file has all columns that a count needs.

    Args:
        file: The file.
        state: Its size and stamp, from before its header was read.
        header: Its header.
        wanted: The columns.

    Raises:
        DataError: It lacks a column, or a column has another type.
    """
    size, stamp = state
    if file.entry is not None and file.entry.size not in (None, size):
        raise DataError(
            f"{file.path} does not have the size that its table records. Restore the file."
        )
    columns = _check_columns_once(file, header, wanted)
    has_deletions = file.entry is not None and file.entry.deleted is not None
    return CheckedFile(
        display_path=file.path,
        location=file.location,
        format=file.format,
        size=size,
        stamp=stamp,
        rows=header.rows,
        exact=header.exact,
        records=None if has_deletions else header.records,
        footer=header.footer,
        **columns,
    )


def _check_columns_once(file: SourceFile, header: Header, wanted: WantedColumns) -> dict[str, Any]:
    """Do as `_check_columns`, but only once for all files of one folder and schema."""
    if file.entry is not None or header.unchecked:
        return _check_columns(file, header, wanted)
    checks = wanted.checks.setdefault((file.keys, file.format), [])
    # Hashing a schema takes longer than comparing it with the few of a folder.
    for known, columns in checks:
        if known.schema.equals(header.schema) and known.forms == header.forms:
            return columns
    columns = _check_columns(file, header, wanted)
    checks.insert(0, (header, columns))
    del checks[_MOST_SCHEMAS:]
    return columns


def _check_columns(file: SourceFile, header: Header, wanted: WantedColumns) -> dict[str, Any]:
    """Check the columns of a file, and return the fields of its `CheckedFile` about columns."""
    check = _ColumnCheck(file, header, wanted)
    for name, attribute in wanted.attributes.items():
        check.add_column(name, get_codec(attribute), _DOMAIN)
    codes = tuple(check.codes.items())
    check.codes = {}
    for name, values in wanted.filters.items():
        check.add_column(name, get_codec(values), _FILTERS)
    left_out = OUTSIDE in check.codes.values()
    if wanted.weight is not None:
        check.add_weight(wanted.weight)
    person_types = tuple((name, check.add_person(name)) for name in wanted.person)
    return {
        "columns": (*check.stored, *check.filled),
        "dictionaries": check.list_dictionaries(),
        "folder_codes": codes,
        "person_types": person_types,
        "left_out": left_out,
        "adaptation": check.make_adaptation(wanted.weight),
    }


class _ColumnCheck:
    """Looks up columns in one file, and collects how to read them.

    Attributes:
        codes: By name, the code that all rows have, from a folder or for a missing column.
        stored: The name of each column in the file.
        filled: The weight of all rows, if the file lacks the column of weights.
    """

    def __init__(self, file: SourceFile, header: Header, wanted: WantedColumns) -> None:
        self._file, self._header = file, header
        self._rules, self._folder_codes = wanted.rules, wanted.codes
        self._schema = header.schema
        self.codes: dict[str, int] = {}
        self.stored: dict[str, str] = {}
        self.filled: dict[str, int | None] = {}
        self._deleted = None if file.entry is None else file.entry.deleted
        self._value_types: dict[str, type] = {}
        self._repeated: list[RepeatedKey] = []
        self._persons: dict[str, str] = {}

    def add_column(self, name: str, attribute: Encoder, wording: _Wording) -> None:
        """Look up the column, or the folder key, of an attribute or a filter."""
        column = self._rules.columns.get(name, name)
        key = self._find_folder_key(column)
        stored = self._find_stored(column)
        if key is not None:
            code = self._folder_codes[name, wording][key.value]
            self.codes[name] = _check_folder_code(code, key, attribute, wording)
            if stored is not None and self._schema is not None:
                self._check_type(stored, attribute, wording)
                self._repeated.append(RepeatedKey(stored, attribute.value_type, key.value))
        elif stored is None:
            self.codes[name] = self._find_default(name, column, attribute, wording)
        else:
            self._add_stored(name, stored, attribute, wording)

    def add_weight(self, name: str) -> None:
        """Look up the column of weights."""
        self._check_no_folder_key(name)
        stored = self._find_stored(name)
        if stored is not None:
            self._add_stored(name, stored, WEIGHT, _WEIGHTS)
        elif name in self._rules.missing:
            self.filled[name] = self._rules.missing[name]
        elif self._file.entry is not None:  # the table lists the column, so its rows are null
            self.filled[name] = None
        else:
            raise self._make_missing_error(name)

    def add_person(self, name: str) -> str | None:
        """Look up the column of persons, and return what it holds."""
        self._check_no_folder_key(name)
        stored = self._find_stored(name)
        if stored is None:
            raise self._make_missing_error(name)
        self.stored[name] = stored
        if self._schema is None:
            self._persons[name] = ""
            return None
        arrow_type = self._schema.field(stored).type
        if why := explain_person_mismatch(arrow_type):
            raise DataError(f"{self._file.path}: column {name!r} {why}. Convert the column.")
        person_type = classify_person_type(arrow_type)
        assert person_type is not None
        if self._header.unchecked:
            self._persons[name] = "" if person_type == "null" else person_type
        elif classify_type(arrow_type) == "decimals":
            self._persons[name] = person_type
        return person_type

    def list_dictionaries(self) -> tuple[str, ...]:
        """List the columns of text, which the Parquet reader reads as dictionaries."""
        if self._file.format is not Format.PARQUET:
            return ()
        return tuple(
            name
            for name, stored in self.stored.items()
            if classify_type(self._schema.field(stored).type) == "strings"
        )

    def make_adaptation(self, weight: str | None) -> Adaptation | None:
        """Return how the batches become the columns to count; None if they already are."""
        renamed = any(name != stored for name, stored in self.stored.items())
        said = (self._value_types, self._repeated, self.filled, self._persons)
        if not (renamed or any(said) or self._deleted is not None or self._header.unchecked):
            return None
        return Adaptation(
            stored=self.stored,
            value_types=self._value_types,
            persons=self._persons,
            weight=weight if self._header.unchecked else None,
            zone=self._rules.zone,
            repeated=tuple(self._repeated),
            filled=self.filled,
            deleted=self._deleted,
            unchecked=self._header.unchecked,
            missing=self._rules.missing if self._header.unchecked else {},
        )

    def _add_stored(self, name: str, stored: str, attribute: Encoder, wording: _Wording) -> None:
        self.stored[name] = stored
        if self._header.unchecked:
            # A frame converts a column once, for all attributes that are read from it.
            for other, column in self.stored.items():
                kind = self._value_types.get(other, attribute.value_type)
                if column == stored and kind is not attribute.value_type:
                    raise DataError(
                        f"{self._file.path}: column {stored!r} is used for {name!r} and {other!r}, "
                        "which have different types. Store a column for each."
                    )
            self._value_types[name] = attribute.value_type
            return
        self._check_type(stored, attribute, wording)
        arrow_type = self._schema.field(stored).type
        if needs_conversion(attribute.value_type, arrow_type, self._rules.zone):
            self._value_types[name] = attribute.value_type

    def _check_type(self, stored: str, attribute: Encoder, wording: _Wording) -> None:
        """Raise DataError if the attribute cannot read a column."""
        forms = self._header.forms.get(stored, ())
        if why := explain_forms(attribute, forms, wording.expects):
            raise DataError(f"{self._file.path}: column {stored!r} {why}")
        if self._file.format in TEXT_FORMATS or self._header.unchecked:
            return
        arrow_type = self._schema.field(stored).type
        if why := explain_mismatch(attribute, arrow_type, wording.expects, self._rules.zone):
            raise DataError(
                f"{self._file.path}: column {stored!r} {why}. Convert the column or change "
                f"{wording.change}."
            )

    def _find_folder_key(self, name: str) -> FolderKey | None:
        """Return the folder key of this name, if there is one. Raise DataError if there are two."""
        keys = [key for key in self._file.keys if key.name == name]
        if len(keys) > 1:
            raise DataError(
                f"{self._file.path}: the path has two folders that set {name!r}. Keep one folder."
            )
        return keys[0] if keys else None

    def _find_stored(self, name: str) -> str | None:
        """Return the name of a column in the file, or None if the file lacks it.

        Raises:
            DataError: The file has two such columns, or the table has none.
        """
        if self._schema is None:
            return name
        names: list[str] = self._schema.names
        stored: str | None = name
        if self._file.entry is not None:
            stored = self._find_by_entry(name)
        if stored is not None and names.count(stored) > 1:
            raise DataError(f"{self._file.path} has two columns {stored!r}. Rename or drop one.")
        return stored if stored in names else None

    def _find_by_entry(self, name: str) -> str | None:
        """Return the name of a table's column in the file, or None if the file lacks it."""
        entry = self._file.entry
        assert entry is not None
        if name in entry.refused:
            raise DataError(f"{self._file.path}: column {name!r} {entry.refused[name]}")
        if name not in entry.columns:
            raise self._make_missing_error(name)
        column = entry.columns[name]
        if not column.names and lacks_numbers(self._schema):
            raise DataError(
                f"{self._file.path} has no field IDs, and its Iceberg table has no name mapping. "
                "Check the table."
            )
        return find_stored_column(self._schema, column)

    def _find_default(self, name: str, column: str, attribute: Encoder, wording: _Wording) -> int:
        """Return the code that all rows have if the file lacks the column."""
        entry = self._file.entry
        if name in self._rules.missing:
            value = self._rules.missing[name]
            return int(attribute.codes(np.array([value, None], dtype=object))[0])
        if entry is not None and column in entry.columns:
            listed = entry.columns[column]
            if listed.absent is not None:
                raise DataError(f"{self._file.path}: column {column!r} {listed.absent}")
            key = FolderKey(column, listed.shared[0] if listed.shared else None, self._file.path)
            (code,) = encode_folder_texts(attribute, [key.value])
            return _check_folder_code(code, key, attribute, wording)
        raise self._make_missing_error(column)

    def _check_no_folder_key(self, name: str) -> None:
        """Raise DataError if a folder key has the name of a column that files must have."""
        for key in self._file.keys:
            if key.name == name:
                raise DataError(
                    f"folder {key.folder}: {name!r} must be a column of the files, not a folder"
                )

    def _make_missing_error(self, name: str) -> DataError:
        """Return the error for a column that the file lacks."""
        file = self._file
        if file.format in TEXT_FORMATS:
            return DataError(
                f"{file.path} has no column {name!r} in its first line. "
                f"{self._suggest_header_name(name)}"
            )
        names = list(file.entry.columns) if file.entry is not None else self._schema.names
        known = {*names, *(key.name for key in file.keys)}
        # A file made from a table without a header has a person's values as column names.
        suggested = (
            suggest_nearest(name, sorted(known))
            if can_name_columns(names)
            else suggest_column(name, known)
        )
        return DataError(f"{file.path} has no column {name!r}. {suggested}")

    def _suggest_header_name(self, name: str) -> str:
        """Return advice about a column that the first line of a CSV file does not name.

        If the file has no header, its first line is a person's record and must not be quoted. The
        line is certainly a header if it names other columns of the count, and all its words can be
        names.
        """
        names = list(self._schema.names)
        if separator := find_separator(names):
            return f"Separate the values by commas, not {separator}."
        if can_name_columns(names) and any(stored in names for stored in self.stored.values()):
            suggested = suggest_nearest(name, names)
            if suggested.startswith("Did you mean"):
                return suggested
        return "Check the spelling, the separator (comma) and the encoding (UTF-8)."


def _check_folder_code(
    code: int | None, key: FolderKey, attribute: Encoder, wording: _Wording
) -> int:
    """Return the code of a folder's value. Raise DataError if the attribute has no such value."""
    if code is None:
        raise DataError(
            f"folder {key.folder}: {wording.expects} {TYPE_NAMES[attribute.value_type]} for "
            f"{key.name!r}, but the folder name gives another value. Rename the folder or "
            f"change {wording.change}."
        )
    return code
