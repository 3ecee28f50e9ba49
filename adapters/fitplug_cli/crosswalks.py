"""Crosswalks: public files of which codes make up which regions, a line for each code in a region.

    GEOID,region            CBSA,FIPS,title
    15001,coast             26180,15003,Urban Honolulu
    15009,coast             27980,15009,Kahului

A code is a leaf, or a node of any level for all that lies in it. Regions may overlap, and need not
cover everything, where they are rows of a query or `fitplug estimate` sums over them; as a level of
a tree they cover every leaf once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fitplug.domain import Attribute, Categories, Hierarchy, Members, Prefix
from fitplug.errors import DomainError, WorkloadError, suggest_nearest
from fitplug.expressions import Runs, Selector, union
from fitplug.workload import Factor, build_labelled_factor, check_matrix_size, is_blank, is_misnamed
from fitplug_cli.codefiles import CodeFile, Refusal

KEY = "crosswalk"
_KEYS = ("file", "leaf", "region")


@dataclass(frozen=True)
class Crosswalk:
    """Which cells of an attribute make up each region, by its label, in the order of the file.

    column: that of the regions. first: the place of each region's first row in the file.
    """

    file: CodeFile
    attribute: str
    column: str
    regions: Mapping[str, Runs]
    first: Mapping[str, str]


def read(
    given: Any,
    folder: Path,
    name: str,
    members: Members,
    error: Refusal,
    level: str | None = None,
) -> Crosswalk:
    """What a spec's `crosswalk = ...` says of an attribute: the path of a file, relative to a
    folder, or a table of `file`, and `leaf` and `region`, its columns. Where these are not named,
    the codes are in the column of the attribute's name and the regions in that of the level's, or
    else the two columns of the file are the codes and the regions. Raises an `error`.
    """
    asked = {"file": given} if isinstance(given, str) else given
    if not isinstance(asked, Mapping) or not isinstance(asked.get("file"), str):
        raise error(
            f'{KEY} must be the path of a file, or {{ file = "...", leaf = "...", region = "..." }}'
        )
    for key, value in asked.items():
        if key not in _KEYS:
            raise error(f"{KEY}: unknown key {key!r}; {suggest_nearest(key, _KEYS)}")
        if not isinstance(value, str):
            raise error(f"{KEY}: {key} must be a text")
    file = CodeFile(folder / asked["file"], "crosswalk", error)
    columns = _columns(file, name, members, error, asked, level)
    return _read(file, name, members, error, *columns)


def of_any(
    selector: Selector,
    path: Path,
    attribute: str | None = None,
    leaf: str | None = None,
    region: str | None = None,
) -> Crosswalk:
    """The regions of a file, by the codes of the attribute that is named, or that a column of the
    file has the name of. Raises WorkloadError.
    """
    file = CodeFile(path, "crosswalk", WorkloadError)
    domain = selector.workload.domain
    if attribute is None:
        known = [name for name in file.names if name in domain]
        if leaf in known or len(known) != 1:
            known = [name for name in known if name == leaf]
        if len(known) != 1:
            raise WorkloadError(
                f"{path}: which attribute's codes are in the file? name one of "
                f"{', '.join(map(repr, domain.names))} by --attribute, or have a column of its name"
            )
        (attribute,) = known
    given = {"leaf": leaf, "region": region}
    asked = {key: name for key, name in given.items() if name is not None}
    try:
        members = selector.find_members(attribute)
    except DomainError as error:
        raise WorkloadError(str(error)) from None
    columns = _columns(file, attribute, members, WorkloadError, asked, None)
    return _read(file, attribute, members, WorkloadError, *columns)


def _read(
    file: CodeFile, name: str, members: Members, error: Refusal, leaf: str, region: str
) -> Crosswalk:
    regions: dict[str, list[tuple[int, int]]] = {}
    first_rows: dict[str, str] = {}
    for i, (code, label) in enumerate(zip(file.column(leaf), file.column(region), strict=True)):
        found = members.find(code)
        if len(found) != 1:
            why = "no value" if not found else "a node of several levels"
            raise error(f"{file.where(i)}: the code is {why} of {name}")
        if is_blank(str(label)):
            raise error(f"{file.where(i)}: the region has no label that can be seen")
        first, last = found.pop()
        regions.setdefault(str(label), []).append((first, last + 1))
        first_rows.setdefault(str(label), file.place(i))
    runs = {label: union(own) for label, own in regions.items()}
    return Crosswalk(file, name, region, runs, first_rows)


def _columns(
    file: CodeFile,
    name: str,
    members: Members,
    error: Refusal,
    asked: Mapping[str, str],
    level: str | None,
) -> tuple[str, str]:
    leaf, region = asked.get("leaf"), asked.get("region")
    names = file.names
    if leaf is None and name in names:
        leaf = name
    if region is None and level in names:
        region = level
    if len(names) == 2 and len(set(names)) == 2:
        leaf = leaf or names[names[0] == region]
        region = region or names[names[0] == leaf]
    if leaf is None or region is None:
        raise error(
            f"{file.path}: which of the file's {len(names)} columns have the codes of {name} and "
            "the regions? write leaf = COLUMN and region = COLUMN"
        )
    if leaf == region:
        raise error(f"{file.path}: codes and regions must be two columns")
    if leaf != name and "leaf" not in asked and members.find(leaf):
        raise error(f"{file.path}: the first line must name the columns, such as {name},region")
    return leaf, region


def with_levels(name: str, attribute: Attribute, given: Any, folder: Path) -> Hierarchy:
    """A tree with a level more for each entry of `crosswalk = { LEVEL = FILE }`, whose nodes are
    the regions of the file; of plain categories, a tree of regions and these. Raises DomainError.
    """
    if not isinstance(given, Mapping) or not given or "file" in given:
        raise DomainError(
            f'{KEY} must name the levels that regions make, such as {{ region = "regions.csv" }}'
        )
    tree = _tree(name, attribute)
    for level, file in given.items():
        # Refuses names that no level may have, before anything of the file can be in the way.
        levels = (*tree.levels, level)
        Hierarchy(levels, [[name] * len(levels)])
        found = read(file, folder, name, Members(tree), DomainError, level)
        region_of: dict[Any, str] = {}
        for label, runs in found.regions.items():
            for first, end in runs:
                for code in tree.values[first:end]:
                    if code in region_of:
                        raise DomainError(
                            f"{found.file.path}: regions share a leaf, so that they make no level; "
                            f"use the file in a query instead, {name} = {{ {KEY} = FILE }}"
                        )
                    region_of[code] = label
        if len(region_of) < tree.size:
            raise DomainError(
                f"{found.file.path}: {tree.size - len(region_of)} of the {tree.size} leaves of "
                f"{name} are in no region; give each leaf a region, or use the file in a query "
                f"instead, {name} = {{ {KEY} = FILE }}"
            )
        try:
            tree = tree.with_level(level, region_of)
        except DomainError:
            raise DomainError(
                f"{found.file.path}: its regions do not nest with the levels {list(tree.levels)}: "
                "each must be made up of whole nodes, or lie within one node, of every level; use "
                f"the file in a query instead, {name} = {{ {KEY} = FILE }}"
            ) from None
    return tree


def rows_of(name: str, attribute: Attribute, given: Any, folder: Path) -> Factor:
    """A labelled row for each region of a file, which counts all in it. Raises WorkloadError."""
    members = Members(attribute)
    found = read(given, folder, name, members, WorkloadError)
    check_matrix_size(name, len(found.regions), attribute.size)
    matrix = np.zeros((len(found.regions), attribute.size))
    for row, (label, runs) in zip(matrix, found.regions.items(), strict=True):
        for first, end in runs:
            row[first:end] = 1.0
        if is_misnamed(members, label, row):
            raise WorkloadError(
                f"{found.file.path}: {found.first[label]}: the region's label is both a value of "
                f"{name} and a row of others; rename the region"
            )
    return build_labelled_factor(name, attribute, matrix, list(found.regions))


def _tree(name: str, attribute: Attribute) -> Hierarchy:
    if isinstance(attribute, Hierarchy):
        return attribute
    if not isinstance(attribute, Categories) or isinstance(attribute, Prefix):
        raise DomainError(f"{KEY} goes with categories and trees")
    if attribute.other is not None:
        raise DomainError(
            f"{KEY} and other do not go together: the cell of other values would be in no region"
        )
    return Hierarchy([name], [[value] for value in attribute.values])
