"""Checked file: one file of the snapshot, which was checked against the domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from fitplug.files import Footer, ParquetSchema, RowGroup
from fitplug_dask.encoding import compact_batch
from fitplug_dask.files.adaptation import Adapt, Adaptation
from fitplug_dask.sources import Format, State

Batches: TypeAlias = Iterator[Any]
"""Arrow record batches that hold at least the columns wanted."""

ReadRowGroup: TypeAlias = Callable[[int, int], Batches]
"""From the number of a row group and the largest number of rows of a batch to its batches."""


_MOST_CHUNKS = 2**9
"""Column chunks that a layout may have, as it travels with every task that reads the file."""


@dataclass(frozen=True)
class ParquetLayout:
    """Where the columns that are wanted lie in a Parquet file.

    Attributes:
        schema: All columns of the file.
        positions: The positions of the wanted columns in the schema.
        groups: The row groups, with the chunks of the wanted columns. CONFIDENTIAL.
    """

    schema: ParquetSchema
    positions: tuple[int, ...]
    groups: tuple[RowGroup, ...]

    @classmethod
    def create(cls, footer: Footer, columns: tuple[str, ...]) -> ParquetLayout | None:
        """Return the layout that a footer tells, checked.

        Args:
            footer: The footer.
            columns: The wanted columns.

        Returns:
            The layout; None if a column has not one value a row, or two have one name.

        Raises:
            ValueError: The footer contradicts itself.
            IndexError: The footer ends early.
        """
        positions = _find_positions(footer.schema, columns)
        if positions is None:
            return None
        return cls(footer.schema, positions, footer.read_groups(positions))

    @cached_property
    def bytes(self) -> tuple[int, ...]:
        """The number of bytes of the wanted columns in each row group."""
        return tuple(sum(chunk.bytes for chunk in g.chunks.values()) for g in self.groups)

    def can_travel(self) -> bool:
        """Return whether tasks take the layout along, and do not read the footer again."""
        return len(self.groups) * len(self.positions) <= _MOST_CHUNKS


@lru_cache(2**7)
def _find_positions(schema: ParquetSchema, columns: tuple[str, ...]) -> tuple[int, ...] | None:
    """Return the positions of some columns, None if they are not flat or share a name."""
    wanted = tuple(i for i, column in enumerate(schema.columns) if column.path in columns)
    flat = all(schema.columns[i].flat for i in wanted)
    return wanted if flat and len(wanted) == len(columns) else None


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
        layout: Where the columns of a Parquet file lie, None if the footer tells it again.
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
    layout: ParquetLayout | None = field(default=None, repr=False)

    @property
    def has_deletions(self) -> bool:
        """Whether the file's table says that some of its rows are deleted."""
        return self.adaptation is not None and self.adaptation.deleted is not None

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
