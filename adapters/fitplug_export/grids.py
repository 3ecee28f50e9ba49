"""Grids of xarray: arrays whose axes have names and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fitplug.files import import_library
from fitplug.releases import Release, choose_intervals, make_metadata
from fitplug_export.answers import PROTECTED, check_export_names, find_protected

if TYPE_CHECKING:
    import xarray

Grid: TypeAlias = "xarray.Dataset"


def to_xarray(
    release: Release,
    name: str,
    *,
    confidence: float | None = None,
    simultaneous: bool | None = None,
) -> Grid:
    """Make an xarray Dataset of a group, with a dimension for each of its attributes.

    The coordinates are the labels that tables show, such as "18..64" for a range. The variables are
    estimate, variance, std, moe, lower and upper, with their `units`, and protected, which is false
    for numbers that are exact because the unit of privacy makes them public. The dataset's `attrs`
    are the metadata of `Release.to_arrow`, such as rho, the unit of privacy and the confidence.

    Args:
        release: The release.
        name: The group.
        confidence: As in `Release.to_arrow`.
        simultaneous: As in `Release.to_arrow`.

    Raises:
        ImportError: xarray is not installed.
        KeyError: There is no such group.
        WorkloadError: The confidence is out of range, or an attribute has the same name as a
            variable.
    """
    group = release.plan.workload[name]
    intervals = choose_intervals(group, confidence, simultaneous)
    check_export_names(group, (PROTECTED, "variance"))
    names = [factor.attribute for factor in group.factors]
    estimate, variance = release.estimates[name], release.variances[name]
    std = np.sqrt(variance)
    moe = intervals.compute_moe(group, std)
    quantity = group.quantity
    numbers = {
        "estimate": (estimate, quantity),
        "variance": (variance, f"({quantity})^2"),
        "std": (std, quantity),
        "moe": (moe, quantity),
        "lower": (estimate - moe, quantity),
        "upper": (estimate + moe, quantity),
    }
    variables = {key: (names, array, {"units": unit}) for key, (array, unit) in numbers.items()}
    meaning = "false for exact numbers that the unit of privacy makes public"
    protected = {PROTECTED: (names, find_protected(release, group), {"long_name": meaning})}
    domain = release.plan.domain
    return import_library("xarray").Dataset(
        variables | protected,
        coords={f.attribute: np.array(f.labels(domain[f.attribute])) for f in group.factors},
        attrs=make_metadata(release, group, intervals),
    )
