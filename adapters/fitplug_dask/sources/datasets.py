"""Data sets: the fragments of a pyarrow.dataset.Dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitplug_dask.sources.file_search import FolderKey, FoundFile
from fitplug_dask.sources.formats import Format
from fitplug_dask.sources.locations import UNTRACKED, Location
from fitplug_dask.sources.streams import make_stream
from fitplug_dask.sources.table_entries import StoredColumn, TableEntry, spell_value


@dataclass(frozen=True, repr=False)
class FragmentLocation:
    """The location of a fragment that Arrow reads.

    Attributes:
        path: What the fragment is called in messages.
        fragment: The fragment.
        schema: The schema of the data set, which all fragments are read as.
        options: None, as Arrow reaches its store itself.
        listed: None, as its state is asked for.
    """

    path: str
    fragment: Any
    schema: Any
    options: None = None
    listed: None = None

    def __repr__(self) -> str:
        return f"FragmentLocation({self.path!r})"

    def read_state(self) -> tuple[int, str]:
        """Return the size and a stamp of the fragment's file, if it is one of a file."""
        path = getattr(self.fragment, "path", None)
        if not path:
            return 1, f"{UNTRACKED}{self.path}"
        info = self.fragment.filesystem.get_file_info(path)
        if not info.is_file:
            raise FileNotFoundError
        return max(1, info.size), f"mtime={info.mtime_ns}"


def find_fragments(source: Any) -> list[FoundFile]:
    """Find the fragments of a data set.

    Local files of Parquet and Arrow are read as if they were named by their paths, with all checks
    of these. The other fragments are read by Arrow. A data set with a filter does not give out its
    fragments, so that it is read as a stream.
    """
    import pyarrow.dataset as pd

    try:
        fragments = list(source.get_fragments())
    except ValueError:

        def scan(columns: Sequence[str]) -> Iterator[Any]:
            batches: Iterator[Any] = source.to_batches(columns=list(columns))
            return batches

        return [make_stream("the filtered data set", source.schema, scan)]
    plain = isinstance(source, pd.FileSystemDataset)
    if plain and all(_is_plain(fragment) for fragment in fragments):
        return [_find_file(fragment, source.schema) for fragment in fragments]
    found = []
    for number, fragment in enumerate(fragments):
        path = getattr(fragment, "path", None) or f"fragment {number}"
        location = FragmentLocation(f"{path} ({number})", fragment, source.schema)
        found.append(FoundFile(path, (), location, Format.FRAGMENT))
    return found


def _is_plain(fragment: Any) -> bool:
    """Return whether a fragment is all of a local file of Parquet or Arrow."""
    import pyarrow.dataset as pd
    from pyarrow.fs import LocalFileSystem

    if not isinstance(fragment.filesystem, LocalFileSystem):
        return False
    if isinstance(fragment.format, pd.ParquetFileFormat):
        every = len(fragment.row_groups) == fragment.metadata.num_row_groups
        return every and fragment.format == pd.ParquetFileFormat()
    return isinstance(fragment.format, pd.IpcFileFormat)


def _find_file(fragment: Any, schema: Any) -> FoundFile:
    """Return the file of a fragment, with the keys that its partition expression gives."""
    import pyarrow.dataset as pd

    keys = tuple(
        FolderKey(name, spell_value(value), str(Path(fragment.path).parent))
        for name, value in pd.get_partition_keys(fragment.partition_expression).items()
    )
    is_parquet = isinstance(fragment.format, pd.ParquetFileFormat)
    return FoundFile(
        fragment.path,
        keys,
        Location(str(Path(fragment.path).absolute())),
        Format.PARQUET if is_parquet else Format.ARROW,
        TableEntry({name: StoredColumn((name,)) for name in schema.names}),
    )
