"""Errors of CSV files, which name a line and never quote it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fitplug.errors import InputError


@contextmanager
def convert_csv_errors(
    path: Path, rows: csv.DictReader[str], error: type[InputError]
) -> Iterator[None]:
    """Turn a csv.Error of the block into an error that names the line of the file.

    Args:
        path: The file.
        rows: The reader of the file.
        error: The class of the error to raise.

    Raises:
        InputError: An `error` if the block raises csv.Error.
    """
    try:
        yield
    except csv.Error:
        raise error(f"{path}: line {rows.line_num} is no CSV; check its quotes") from None
