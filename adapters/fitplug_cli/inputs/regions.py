"""The regions in which `fitplug estimate --by` estimates each expression.

They are the cells of an attribute, the nodes of a level of a tree, or the regions of a crosswalk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fitplug.domain import Domain
from fitplug.errors import InputError, WorkloadError, suggest_nearest
from fitplug.expressions import Runs, Selector
from fitplug_cli.inputs.crosswalks import read_crosswalk_of_release


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
    found = read_crosswalk_of_release(
        selector, path, options.attribute, options.leaf, options.region
    )
    origins = {
        label: f"region of {where} of {found.file.path}" for label, where in found.first.items()
    }
    return Regions(found.attribute, found.column, found.regions, origins)
