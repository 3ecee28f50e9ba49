"""Page checksums: whether Parquet files hold what reveals damage within a page.

Writers may leave the checksums out. A bit that changes within such a page, where nothing else is
damaged, changes a value unnoticed. This is told once a count; it is no error, as most files are so.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from fitplug.files import read_struct
from fitplug_dask.files.checked_file import CheckedFile
from fitplug_dask.sources import Format

_FIRST_PAGE = 4  # after the magic bytes; writers put nothing else there
_CHECKSUM = 4  # the number of the field in the Thrift definition of a page header
_HEADER_BYTES = 2**10
_LOCAL_FILES, _STORED_FILES = 100, 2


class ChecksumSample(NamedTuple):
    """How many files lack checksums.

    Attributes:
        lacking: The Parquet files, of those looked at, whose first page has no checksum.
        files: The Parquet files that were looked at.
    """

    lacking: int
    files: int


def sample_checksums(files: Sequence[CheckedFile]) -> ChecksumSample:
    """Look at the first page of some of the files; files of one writer are the same in this."""
    parquet = [file for file in files if file.format is Format.PARQUET and not file.left_out]
    in_store = any(file.location.options is not None for file in parquet)
    step = -(-len(parquet) // (_STORED_FILES if in_store else _LOCAL_FILES)) or 1
    found = [_has_checksum(file) for file in parquet[::step]]
    known = [has for has in found if has is not None]
    return ChecksumSample(known.count(False), len(known))


def _has_checksum(file: CheckedFile) -> bool | None:
    """Return whether the first page of a file has a checksum; None if that cannot be told."""
    if not any(file.rows):
        return None
    try:
        with closing(file.open(sequential=False)) as source:
            source.raw.seek(_FIRST_PAGE)  # the buffer would read more
            page, _ = read_struct(source.raw.read(_HEADER_BYTES), 0, {})
        return _CHECKSUM in page
    except Exception:  # whoever reads the file says what is wrong with it
        return None
