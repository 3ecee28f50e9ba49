"""Files of expressions: a CSV with the columns name and expression, or a text with one on a line.

The wrong file may be given, for instance the records themselves. Errors therefore name a line and
never quote it.
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
from fitplug_cli.files import read_text
from fitplug_cli.inputs.csv_errors import convert_csv_errors


class NamedExpression(NamedTuple):
    """An expression that is to be estimated.

    Attributes:
        name: Its name in the results.
        text: The expression.
        where: The file and the line it is from; None if it is an argument of the command.
    """

    name: str
    text: str
    where: str | None = None

    def explain_error(self, error: str) -> str:
        """Return a message for an error of this expression, which quotes no line of a file.

        Args:
            error: The message of the error, which may quote the expression.

        Returns:
            The same message for an argument. For an expression of a file, its line and the position
            of the error.
        """
        if self.where is None:
            return error
        at = re.search(r".* at (column [0-9]+)", error)
        return (
            f"{self.where} is no expression on this release"
            + (f": it is wrong from {at[1]} on" if at else "")
            + "; give it as an argument to be told why"
        )


def collect_expressions(expressions: Sequence[str], table: Path | None) -> list[NamedExpression]:
    """Collect the expressions of the arguments, and those of a file.

    Args:
        expressions: Expressions; each is its own name.
        table: A CSV with the columns name and expression if its suffix is .csv. Otherwise a text
            with a line "name: expression" or "expression" for each, in which empty lines and lines
            that begin with # are skipped.

    Returns:
        The expressions; one that is given twice by the same name is in the list once.

    Raises:
        InputError: If there is no expression, the file cannot be read, or two expressions have
            one name.
    """
    found = {text: NamedExpression(text, text) for text in expressions}
    for one in [] if table is None else _read_table(table):
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


def _read_table(path: Path) -> Iterator[NamedExpression]:
    text = read_text(path, "file of expressions", "a text", InputError)
    return _parse_csv(path, text) if path.suffix.lower() == ".csv" else _parse_lines(path, text)


def _parse_csv(path: Path, text: str) -> Iterator[NamedExpression]:
    with _allow_long_fields(len(text)):
        rows = csv.DictReader(io.StringIO(text, newline=""))
        with convert_csv_errors(path, rows, InputError):
            if set(rows.fieldnames or ()) != {"name", "expression"}:
                raise InputError(f"{path}: the first line of the table must be: name,expression")
            for row in rows:
                name, expression = ((row[key] or "").strip() for key in ("name", "expression"))
                yield NamedExpression(name, expression, f"{path}: line {rows.line_num}")


@contextmanager
def _allow_long_fields(most: int) -> Iterator[None]:
    """Let Python read fields of so many characters: expressions over many values are that long."""
    before = csv.field_size_limit(max(most, 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _parse_lines(path: Path, text: str) -> Iterator[NamedExpression]:
    for number, line in enumerate(text.split("\n"), 1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        where = f"{path}: line {number}"
        name, colon, expression = content.partition(":")
        # A colon within the quotes of a group's name does not end the name of an expression.
        if not colon or "'" in name or '"' in name:
            yield NamedExpression(content, content, where)
        else:
            yield NamedExpression(name.strip(), expression.strip(), where)
