"""Files of expressions: a CSV with columns name and expression, or a text with one a line.

The wrong file may be given, the records themselves for instance: errors name lines and never what
is on them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fitplug.errors import InputError
from fitplug_cli.files import text_of


class Asked(NamedTuple):
    """An expression and its name, and where it is from, if it is from a file."""

    name: str
    text: str
    where: str | None = None

    def told(self, error: str) -> str:
        """What to say of an error of the expression."""
        if self.where is None:
            return error
        at = re.search(r".* at (column [0-9]+)", error)
        return (
            f"{self.where} is no expression on this release"
            + (f", from {at[1]} of it on" if at else "")
            + "; give it as an argument to be told why"
        )


def asked(expressions: Sequence[str], table: Path | None) -> list[Asked]:
    """Expressions as given, which are their own names, and those of a file.

    The file is a CSV with columns name and expression if its name ends in .csv, else a text with
    a line "name: expression" or "expression" each; empty lines and lines after # are skipped.
    Raises InputError.
    """
    found = {text: Asked(text, text) for text in expressions}
    for one in [] if table is None else _lines(table):
        if not one.text:
            raise InputError(f"{one.where} has no expression; write one")
        if found.setdefault(one.name, one).text != one.text:
            raise InputError(
                f"{one.where}: its name has another expression; give each its own name"
            )
    if not found:
        raise InputError(
            'nothing to estimate: give an expression such as "total", or a table of them by --from'
        )
    return list(found.values())


def _lines(path: Path) -> Iterator[Asked]:
    text = text_of(path, "file of expressions", "a text", InputError)
    return _of_csv(path, text) if path.suffix.lower() == ".csv" else _of_text(path, text)


def _of_csv(path: Path, text: str) -> Iterator[Asked]:
    with _fields_of_any_length(len(text)):
        rows = csv.DictReader(io.StringIO(text, newline=""))
        try:
            if set(rows.fieldnames or ()) != {"name", "expression"}:
                raise InputError(f"{path}: the first line of the table must be: name,expression")
            for row in rows:
                name, expression = ((row[key] or "").strip() for key in ("name", "expression"))
                yield Asked(name, expression, f"{path}: line {rows.line_num}")
        except csv.Error:
            raise InputError(f"{path}: line {rows.line_num} is no CSV; check its quotes") from None


@contextmanager
def _fields_of_any_length(most: int) -> Iterator[None]:
    """An expression over many values is longer than what Python takes for a field of a CSV."""
    before = csv.field_size_limit(max(most, 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _of_text(path: Path, text: str) -> Iterator[Asked]:
    for number, line in enumerate(text.split("\n"), 1):
        said = line.strip()
        if not said or said.startswith("#"):
            continue
        name, colon, rest = said.partition(":")
        # A colon within the quotes of a group's name begins no expression.
        if not colon or "'" in name or '"' in name:
            yield Asked(said, said, f"{path}: line {number}")
        else:
            yield Asked(name.strip(), rest.strip(), f"{path}: line {number}")
