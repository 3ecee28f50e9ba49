"""Crosswalks: public files that assign codes to regions.

A crosswalk has one line for each code of each region:

    GEOID,region            CBSA,FIPS,title
    15001,coast             26180,15003,Urban Honolulu
    15009,coast             27980,15009,Kahului

A code is a leaf, or a node of any level, which means all its leaves. Regions of a query or of
`fitplug estimate` may overlap and need not cover all leaves. Regions that become a level of a tree
must cover each leaf exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fitplug.domain import Attribute, Hierarchy, ValueLookup
from fitplug.errors import DomainError, WorkloadError, suggest_nearest
from fitplug.expressions import Runs, Selector, union
from fitplug.workload import Factor, build_labelled_factor, check_matrix_size, is_blank, is_misnamed
from fitplug_cli.inputs.code_files import CodeFile, ErrorClass

CROSSWALK_KEY = "crosswalk"
"""The key of a crosswalk in [domain] and in a [[query]]."""

_KEYS = ("file", "leaf", "region")


@dataclass(frozen=True)
class Regions:
    """Sets of cells of one attribute: the regions of a crosswalk, or the nodes of a level.

    Attributes:
        attribute: The name of the attribute.
        column: The name of the column of regions.
        cells: The cells of each region, by its label.
        origins: Where each region is defined, for errors, by its label.
    """

    attribute: str
    column: str
    cells: Mapping[str, Runs]
    origins: Mapping[str, str]


def _read_crosswalk_of_spec(
    given: Any,
    folder: Path,
    name: str,
    members: ValueLookup,
    error: ErrorClass,
    level: str | None = None,
) -> tuple[Path, Regions]:
    """Read the crosswalk that a spec names for an attribute.

    Columns that the spec does not name are found by their names: codes by the attribute's, regions
    by the level's. In a file with two columns one of them is enough.

    Args:
        given: The value of `crosswalk`: the path of a file, or a table of `file`, `leaf` (the
            column of codes) and `region` (the column of regions).
        folder: The folder that the path is relative to.
        name: The name of the attribute.
        members: The codes of the attribute.
        error: The class of the errors to raise.
        level: The name of the level that the regions define, if any.

    Returns:
        The path of the file, and its regions in the order of the file.

    Raises:
        InputError: An `error` if the value or the file is wrong.
    """
    keys = {"file": given} if isinstance(given, str) else given
    if not isinstance(keys, Mapping) or not isinstance(keys.get("file"), str):
        raise error(
            f"{CROSSWALK_KEY} must be the path of a file, or "
            '{ file = "...", leaf = "...", region = "..." }'
        )
    for key, value in keys.items():
        if key not in _KEYS:
            raise error(f"{CROSSWALK_KEY}: unknown key {key!r}. {suggest_nearest(key, _KEYS)}")
        if not isinstance(value, str):
            raise error(f"{CROSSWALK_KEY}: {key} must be a string")
    file = CodeFile(folder / keys["file"], "crosswalk", error)
    return file.path, _read_regions(file, name, members, error, keys, level)


def read_crosswalk_of_release(
    selector: Selector,
    path: Path,
    attribute: str | None = None,
    leaf: str | None = None,
    region: str | None = None,
) -> Regions:
    """Read a crosswalk for the attributes of a release.

    Args:
        selector: Finds the codes of the release's attributes.
        path: The file.
        attribute: The attribute whose codes the file has; by default the attribute that a column
            is named after.
        leaf: The column of codes, if it cannot be found by its name.
        region: The column of regions, if it cannot be found by its name.

    Returns:
        The regions, in the order of the file.

    Raises:
        WorkloadError: The file is wrong, or its attribute cannot be found.
    """
    file = CodeFile(path, "crosswalk", WorkloadError)
    domain = selector.workload.domain
    if attribute is None:
        known = [name for name in file.names if name in domain]
        if leaf in known or len(known) != 1:
            known = [name for name in known if name == leaf]
        if len(known) != 1:
            raise WorkloadError(
                f"{path}: the attribute that the codes belong to is unclear. Give --attribute one "
                f"of: {', '.join(map(repr, domain.names))}"
            )
        (attribute,) = known
    given = {"leaf": leaf, "region": region}
    keys = {key: name for key, name in given.items() if name is not None}
    try:
        members = selector.find_values(attribute)
    except DomainError as error:
        raise WorkloadError(str(error)) from None
    return _read_regions(file, attribute, members, WorkloadError, keys, None)


def _read_regions(
    file: CodeFile,
    name: str,
    members: ValueLookup,
    error: ErrorClass,
    keys: Mapping[str, str],
    level: str | None,
) -> Regions:
    """Read the regions from two columns of a file."""
    leaf, region = _find_columns(file, name, members, error, keys, level)
    regions: dict[str, list[tuple[int, int]]] = {}
    origins: dict[str, str] = {}
    rows = zip(file.read_column(leaf), file.read_column(region), strict=True)
    for i, (code, label) in enumerate(rows):
        cells = members.find(code)
        if len(cells) != 1:
            why = "is not a value" if not cells else "occurs on several levels"
            raise error(f"{file.locate(i)}: the code {why} of {name}. Correct the code.")
        text = str(label)
        if text not in regions:
            if is_blank(text):
                raise error(f"{file.locate(i)}: the region's label is blank. Add a label.")
            regions[text], origins[text] = [], file.locate(i)
        first, last = cells.pop()
        regions[text].append((first, last + 1))
    cells_of = {label: union(intervals) for label, intervals in regions.items()}
    return Regions(name, region, cells_of, origins)


def _find_columns(
    file: CodeFile,
    name: str,
    members: ValueLookup,
    error: ErrorClass,
    keys: Mapping[str, str],
    level: str | None,
) -> tuple[str, str]:
    """Find the names of the column of codes and of the column of regions."""
    leaf, region = keys.get("leaf"), keys.get("region")
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
            f"{file.path}: the columns of codes and regions are unclear. Name them as 'leaf' and "
            "'region'."
        )
    if leaf == region:
        raise error(f"{file.path}: codes and regions must be different columns")
    if leaf != name and "leaf" not in keys and members.find(leaf):
        raise error(f"{file.path}: the first line must name the columns, for example {name},region")
    return leaf, region


def add_levels_of_regions(name: str, attribute: Attribute, given: Any, folder: Path) -> Hierarchy:
    """Add a level to a tree for each entry of `crosswalk = { LEVEL = FILE }`.

    Args:
        name: The name of the attribute.
        attribute: A tree, or categories, which become leaves.
        given: The value of `crosswalk`.
        folder: The folder that paths are relative to.

    Returns:
        A tree whose nodes of each new level are the regions of its file.

    Raises:
        DomainError: If a file is wrong, or its regions do not nest with the levels of the tree.
    """
    if not isinstance(given, Mapping) or not given or "file" in given:
        raise DomainError(
            f"{CROSSWALK_KEY} must map each new level to a file, such as "
            '{ region = "regions.csv" }'
        )
    tree = _convert_to_tree(name, attribute)
    in_query = f"{name} = {{ {CROSSWALK_KEY} = FILE }}"
    for level, file in given.items():
        # Refuse invalid level names before an error in the file hides them.
        levels = (*tree.levels, level)
        Hierarchy(levels, [[name] * len(levels)])
        path, regions = _read_crosswalk_of_spec(
            file, folder, name, ValueLookup(tree), DomainError, level
        )
        region_of: dict[Any, str] = {}
        for label, runs in regions.cells.items():
            for first, end in runs:
                for code in tree.values[first:end]:
                    if code in region_of:
                        raise DomainError(
                            f"{path}: the regions of a level must not overlap. Use the file in a "
                            f"query: {in_query}"
                        )
                    region_of[code] = label
        leaves = len(tree.values)
        if len(region_of) < leaves:
            raise DomainError(
                f"{path}: {leaves - len(region_of)} of the {leaves} leaves of {name} have no "
                "region. Give each leaf a region."
            )
        try:
            tree = tree.with_level(level, region_of)
        except DomainError:
            raise DomainError(
                f"{path}: a region cuts across nodes of the levels {list(tree.levels)}. Use the "
                f"file in a query: {in_query}"
            ) from None
    return tree


def build_region_rows(name: str, attribute: Attribute, given: Any, folder: Path) -> Factor:
    """Build the query rows of `crosswalk = FILE`: one count for each region.

    Args:
        name: The name of the attribute.
        attribute: The attribute.
        given: The value of `crosswalk` in the query.
        folder: The folder that paths are relative to.

    Returns:
        A factor with a row for each region and its label.

    Raises:
        WorkloadError: If the file is wrong, or a region has the label of a different value.
    """
    members = ValueLookup(attribute)
    _, regions = _read_crosswalk_of_spec(given, folder, name, members, WorkloadError)
    check_matrix_size(name, len(regions.cells), attribute.size)
    matrix = np.zeros((len(regions.cells), attribute.size))
    for row, (label, runs) in zip(matrix, regions.cells.items(), strict=True):
        for first, end in runs:
            row[first:end] = 1.0
        if is_misnamed(members, label, row):
            raise WorkloadError(
                f"{regions.origins[label]}: the region has the label of another value of {name}. "
                "Rename the region."
            )
    return build_labelled_factor(name, attribute, matrix, list(regions.cells))


def _convert_to_tree(name: str, attribute: Attribute) -> Hierarchy:
    """Return a tree unchanged; make a one-level tree from categories."""
    try:
        return Hierarchy.from_attribute(attribute, level=name)
    except DomainError as error:
        raise DomainError(f"{CROSSWALK_KEY} cannot be used: {error}") from None
