"""What `fitplug estimate` estimates: expressions, and the regions in which it does so.

A file of expressions is a CSV with the columns name and expression, or a text with one on a line.
The wrong file may be given, for instance the records themselves. Errors therefore name a line and
never quote it. Regions are the cells of an attribute, the nodes of a level of a tree, or the
regions of a crosswalk.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fitplug.domain import Domain
from fitplug.errors import InputError, WorkloadError, suggest_nearest
from fitplug.expressions import Runs, Selector
from fitplug_cli.files import read_text
from fitplug_cli.inputs.code_files import convert_csv_errors
from fitplug_cli.inputs.crosswalks import read_crosswalk_of_release


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
    by_name = {text: NamedExpression(text, text) for text in expressions}
    for expression in [] if table is None else _read_table(table):
        if not expression.text:
            raise InputError(f"{expression.where} has no expression; write one")
        if by_name.setdefault(expression.name, expression).text != expression.text:
            raise InputError(
                f"{expression.where}: its name has another expression; give each its own name"
            )
    if not by_name:
        raise InputError(
            'nothing to estimate: give an expression such as "total", or a table of them by --from'
        )
    return list(by_name.values())


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


@dataclass(frozen=True)
class RegionOptions:
    """The options that name the regions.

    Attributes:
        by: An attribute, a level of a tree, or the path of a crosswalk.
        attribute: The attribute whose codes the crosswalk has; None to find it.
        leaf: The crosswalk's column of codes; None to find it.
        region: The crosswalk's column of regions; None to find it.
    """

    by: str
    attribute: str | None = None
    leaf: str | None = None
    region: str | None = None


@dataclass(frozen=True)
class Regions:
    """Sets of cells of one attribute.

    Attributes:
        attribute: The name of the attribute.
        column: What the regions are, the name of their column in results.
        cells: The cells of each region, by its label.
        origins: Where each region comes from, for errors, by its label.
    """

    attribute: str
    column: str
    cells: Mapping[str, Runs]
    origins: Mapping[str, str]


def read_region_options(
    by: str | None, attribute: str | None, leaf: str | None, region: str | None
) -> RegionOptions | None:
    """Check the options of regions.

    Args:
        by: The value of --by.
        attribute: The value of --attribute.
        leaf: The value of --leaf.
        region: The value of --region.

    Returns:
        The options; None if there are none.

    Raises:
        InputError: If columns are named without a crosswalk.
    """
    if by is not None:
        return RegionOptions(by, attribute, leaf, region)
    if attribute or leaf or region:
        raise InputError("--attribute, --leaf and --region say what --by has; give --by FILE too")
    return None


def find_regions(selector: Selector, options: RegionOptions) -> Regions:
    """Find the cells of each region.

    Args:
        selector: It finds the codes of the release's attributes.
        options: What names the regions. The name of an attribute or of a level comes before a file
            of the same name.

    Returns:
        The regions, in the order of the cells or of the file.

    Raises:
        InputError: If nothing has the name, several trees have such a level, or the crosswalk is
            wrong.
    """
    domain = selector.workload.domain
    named = _find_in_domain(domain, options.by)
    if not named:
        return _read_crosswalk(selector, options)
    if options.attribute or options.leaf or options.region:
        raise InputError(
            f"--attribute, --leaf and --region describe a file, and --by names {named[0][0]!r} of "
            f"the release; leave them out, or write ./{options.by} for a file"
        )
    if len(named) > 1:
        raise InputError(
            f"--by: {options.by!r} is a level of {', '.join(repr(name) for name, _ in named)}; "
            "give a crosswalk of the one that is meant"
        )
    return _list_nodes(domain, options.by, *named[0])


def _find_in_domain(domain: Domain, by: str) -> list[tuple[str, str | None]]:
    """List the attribute of this name, or each attribute with a level of this name, and it."""
    if by in domain:
        return [(by, None)]
    return [(name, by) for name in domain.names if by in domain[name].levels]


def _list_nodes(domain: Domain, column: str, name: str, level: str | None) -> Regions:
    """Return a region for each cell of an attribute, or for each node of a level of it."""
    attribute = domain[name]
    if level is None:
        labels, ends = attribute.labels, [(i, i) for i in range(attribute.size)]
    else:
        labels, ends = attribute.labels_at(level), attribute.intervals(level).tolist()
    cells = {label: [(a, b + 1)] for label, (a, b) in zip(labels, ends, strict=True)}
    return Regions(name, column, cells, {label: f"{column} {label}" for label in labels})


def _read_crosswalk(selector: Selector, options: RegionOptions) -> Regions:
    """Read the regions of a file."""
    domain = selector.workload.domain
    path = Path(options.by)
    if not path.suffix and not path.exists():
        levels = [level for name in domain.names for level in domain[name].levels]
        known = [*domain.names, *levels]
        raise WorkloadError(
            f"--by: {options.by!r} is neither an attribute of the release, nor a level of one, nor "
            f"a file of codes and regions; {suggest_nearest(options.by, known)}"
        )
    crosswalk = read_crosswalk_of_release(
        selector, path, options.attribute, options.leaf, options.region
    )
    origins = {
        label: f"region of {where} of {crosswalk.file.path}"
        for label, where in crosswalk.first.items()
    }
    return Regions(crosswalk.attribute, crosswalk.column, crosswalk.regions, origins)
