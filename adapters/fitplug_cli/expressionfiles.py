"""Files of expressions: a CSV with columns name and expression, or a text with one a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fitplug.errors import InputError
from fitplug_cli.files import text_of


class Asked(NamedTuple):
    """An expression and its name, and the file and line it is from, if it is from one; table:
    whether that is a CSV whose first line says that it is of expressions.
    """

    name: str
    text: str
    file: Path | None = None
    line: int = 0
    table: bool = False

    @property
    def where(self) -> str:
        return f"{self.file}: line {self.line}"

    def told(self, error: str, *, known: bool) -> str:
        """An error of the expression; known: whether what the file holds may be quoted."""
        if self.file is None:
            return error
        if not known:
            return (
                f"{self.where} is no expression over the groups of this release; give one on the "
                "command line to be told why"
            )
        return f"{self.where}: {self.name!r}: {error}"


def asked(expressions: Sequence[str], table: Path | None) -> list[Asked]:
    """Expressions as given, which are their own names, and those of a file.

    The file is a CSV with columns name and expression if its name ends in .csv, else a text with
    a line "name: expression" or "expression" each; empty lines and lines after # are skipped.
    Raises InputError.
    """
    found = {text: Asked(text, text) for text in expressions}
    for one in [] if table is None else _lines(table):
        shown = repr(one.name) if one.table else "the name before the colon"
        if not one.text:
            raise InputError(f"{one.where}: {shown} has no expression; write one")
        if found.setdefault(one.name, one).text != one.text:
            raise InputError(f"{one.where}: {shown} names two expressions; give each its own name")
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
                yield Asked(name, expression, path, rows.line_num, table=True)
        except csv.Error:
            raise InputError(f"{path}: line {rows.line_num} is no CSV; write it anew") from None


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
            yield Asked(said, said, path, number)
        else:
            yield Asked(name.strip(), rest.strip(), path, number)
