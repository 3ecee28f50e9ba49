"""Expressions and regions for `fitplug estimate`.

A file of expressions is a CSV file with columns name and expression, or a text file with one
expression per line. Someone may name the confidential data by mistake, so errors give a line and
never quote it. Regions are the cells of an attribute, the nodes of a tree's level, or the regions
of a crosswalk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fitplug.domain import get_codec
from fitplug.errors import InputError, WorkloadError, suggest_nearest
from fitplug.expressions import Selector
from fitplug_cli.files import read_text
from fitplug_cli.inputs.code_files import CodeFile
from fitplug_cli.inputs.crosswalks import Regions, read_crosswalk_of_release


class NamedExpression(NamedTuple):
    """An expression to estimate.

    Attributes:
        name: Its name in the results.
        text: The expression.
        where: Its file and line; None for an argument of the command.
    """

    name: str
    text: str
    where: str | None = None

    def explain_error(self, error: str) -> str:
        """Explain an error of this expression without quoting a file.

        Args:
            error: The message, which may quote the expression.

        Returns:
            The message itself for an argument; for an expression from a file, only its line and
            the position of the error.
        """
        if self.where is None:
            return error
        at = re.search(r".* at (character [0-9]+)", error)
        return (
            f"{self.where} is not a valid expression on this release"
            + (f": error at {at[1]}" if at else "")
            + ". Give the expression as an argument to see why."
        )


def collect_expressions(expressions: Sequence[str], table: Path | None) -> list[NamedExpression]:
    """Collect the expressions of the arguments, and those of a file.

    Args:
        expressions: Expressions, each its own name.
        table: A .csv file with columns name and expression, or a text file with a line
            "name: expression" or "expression" for each. Empty lines and lines that begin with #
            are skipped.

    Returns:
        The expressions, without repetitions.

    Raises:
        InputError: If there is no expression, the file cannot be read, or two expressions share a
            name.
    """
    by_name = {text: NamedExpression(text, text) for text in expressions}
    for expression in [] if table is None else _read_table(table):
        if not expression.text:
            raise InputError(f"{expression.where} has no expression. Add the expression.")
        if by_name.setdefault(expression.name, expression).text != expression.text:
            raise InputError(
                f"{expression.where}: the name is already used. Give each expression its own name."
            )
    if not by_name:
        raise InputError(
            'Nothing to estimate. Give an expression such as "total", or a file with --from.'
        )
    return list(by_name.values())


def _read_table(path: Path) -> Iterator[NamedExpression]:
    what = "file of expressions"
    if path.suffix.lower() != ".csv":
        yield from _parse_lines(path, read_text(path, what, "a text file", InputError))
        return
    file = CodeFile(path, what, InputError)
    if sorted(file.names) != ["expression", "name"]:
        raise InputError(f"{path}: the first line must be: name,expression")
    for i, row in file.iterate_rows():
        yield NamedExpression(row["name"].strip(), row["expression"].strip(), file.locate(i))


def _parse_lines(path: Path, text: str) -> Iterator[NamedExpression]:
    for number, line in enumerate(text.split("\n"), 1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        where = f"{path}: line {number}"
        name, colon, expression = content.partition(":")
        # A colon inside a quoted group name does not end the expression's name.
        if not colon or "'" in name or '"' in name:
            yield NamedExpression(content, content, where)
        else:
            yield NamedExpression(name.strip(), expression.strip(), where)


class RegionOptions(NamedTuple):
    """The options that define the regions.

    Attributes:
        by: An attribute, a tree's level, or the path of a crosswalk.
        attribute: The attribute whose codes the crosswalk has; None to find it.
        leaf: The crosswalk's column of codes; None to find it.
        region: The crosswalk's column of regions; None to find it.
    """

    by: str
    attribute: str | None = None
    leaf: str | None = None
    region: str | None = None


def read_region_options(
    by: str | None, attribute: str | None, leaf: str | None, region: str | None
) -> RegionOptions | None:
    """Collect --by, --attribute, --leaf and --region; None if none is given.

    Raises:
        InputError: Columns are named without a crosswalk.
    """
    if by is not None:
        return RegionOptions(by, attribute, leaf, region)
    if attribute or leaf or region:
        raise InputError("--attribute, --leaf and --region need a file. Add --by FILE.")
    return None


def find_regions(selector: Selector, options: RegionOptions) -> Regions:
    """Find the cells of each region, in the order of the cells or the file.

    An attribute or level takes precedence over a file of the same name.

    Raises:
        InputError: The name is unknown, several trees have the level, or the crosswalk is wrong.
    """
    domain, by = selector.workload.domain, options.by
    levels_of = {name: get_codec(attribute).levels for name, attribute in domain.attributes}
    named = [by] if by in domain else [name for name in domain if by in levels_of[name]]
    if not named:
        path = Path(by)
        if not path.suffix and not path.exists():
            levels = [level for levels in levels_of.values() for level in levels]
            raise WorkloadError(
                f"--by: unknown attribute, level or file {by!r}. "
                f"{suggest_nearest(by, [*domain.names, *levels])}"
            )
        return read_crosswalk_of_release(selector, path, *options[1:])
    if options.attribute or options.leaf or options.region:
        raise InputError(
            f"--attribute, --leaf and --region need a file, but --by {by} is not a file. Remove "
            "these options."
        )
    if len(named) > 1:
        raise InputError(
            f"--by: {by!r} is a level of several attributes: {', '.join(map(repr, named))}. Give "
            "--by a file of codes and regions."
        )
    codec = get_codec(domain[named[0]])
    if by in domain:
        labels, ends = codec.labels, [(i, i) for i in range(codec.size)]
    else:
        labels, ends = codec.labels_at(by), codec.intervals(by).tolist()
    cells = {label: [(a, b + 1)] for label, (a, b) in zip(labels, ends, strict=True)}
    return Regions(named[0], by, cells, {label: f"{by} {label}" for label in labels})
