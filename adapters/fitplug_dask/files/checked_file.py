"""Checked file: one file of the snapshot, which was checked against the domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from fitplug_dask.encoding import compact_batch
from fitplug_dask.files.adaptation import Adapt, Adaptation
from fitplug_dask.sources import Format, State

Batches: TypeAlias = Iterator[Any]
"""Arrow record batches that hold at least the columns wanted."""

ReadRowGroup: TypeAlias = Callable[[int, int], Batches]
"""From the number of a row group and the largest number of rows of a batch to its batches."""


@dataclass(frozen=True)
class CheckedFile:
    """A file as it was when the snapshot was taken.

    Attributes:
        display_path: The path as it was given, for messages.
        location: Where the file is opened; a Location, unless another library reads it.
        format: The format of the file.
        size: The size in bytes.
        stamp: What the file system or the store says about the content.
        rows: The rows of each row group: by the footer if `exact`, else guesses above 0.
        exact: Whether `rows` are exact.
        columns: The columns to read, which are those of attributes, filters, weights and persons.
        dictionaries: The columns among them to read as dictionaries.
        folder_codes: Attributes and the codes that the file's folders give them.
        records: The rows of the file, None if only reading the file can count them.
        person: What the column that identifies persons holds, if there is one.
        left_out: Whether its folders say that no row of the file passes the filters.
        adaptation: How its batches become the columns to count; None if they are these columns.
        footer: The footer of a Parquet file in a store, None if it is read again. CONFIDENTIAL.
    """

    display_path: str
    location: Any
    format: Format
    size: int
    stamp: str
    rows: tuple[int, ...] = field(repr=False)
    exact: bool
    records: int | None = field(repr=False)
    columns: tuple[str, ...]
    dictionaries: tuple[str, ...]
    folder_codes: tuple[tuple[str, int], ...]
    person: str | None = None
    left_out: bool = False
    adaptation: Adaptation | None = None
    footer: bytes | None = field(default=None, repr=False)

    @property
    def state(self) -> State:
        """The size and the stamp."""
        return self.size, self.stamp

    def open(self, *, sequential: bool) -> Any:
        """Open the file for reading bytes, as `Location.open`, in the state of the snapshot."""
        return self.location.open(sequential=sequential, state=self.state)

    def is_unchanged(self) -> bool:
        """Return whether the file is still the one of the snapshot.

        Raises:
            Exception: Whatever the file system or the client of the store raises.
        """
        return self.location.read_state() == self.state

    def name_stored(self) -> CheckedFile:
        """Return the same file with the names that it has for the columns, to read them."""
        if self.adaptation is None:
            return self
        stored = self.adaptation.stored
        columns = self.adaptation.read_columns
        names = tuple(stored[name] for name in self.dictionaries)
        return replace(self, columns=columns, dictionaries=names)

    def load_adaptation(self) -> Adapt:
        """Return what makes the columns to count of a batch of the columns that are read.

        Batches of all sources pass here before anything else looks at them, and are compacted.
        """
        if self.adaptation is None:
            return lambda batch, first: compact_batch(batch)
        adapt = self.adaptation.load()
        return lambda batch, first: adapt(compact_batch(batch), first)
