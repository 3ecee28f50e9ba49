"""Grids of a release for xarray: a dimension for each attribute of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.files import import_library
from fitplug.release.labelled_answers import PROTECTED, check_export_names, find_protected
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.tables import Intervals, make_metadata
from fitplug.workload import QueryGroup

if TYPE_CHECKING:
    import xarray

Grid: TypeAlias = "xarray.Dataset"

_VARIANCE = "variance"


def make_grid(release: NoisyAnswers, group: QueryGroup, intervals: Intervals) -> Grid:
    """Make an xarray Dataset of a group; see `Release.to_xarray`.

    Raises:
        ImportError: xarray is not installed.
        WorkloadError: An attribute has the name of a variable.
    """
    check_export_names(group)
    names = [factor.attribute for factor in group.factors]
    if _VARIANCE in names:
        raise WorkloadError(f"attribute {_VARIANCE!r} has the name of a variable; rename it")
    estimate, variance = release.estimates[group.name], release.variances[group.name]
    std = np.sqrt(variance)
    moe = intervals.compute_moe(group, std)
    quantity = group.quantity
    numbers = {
        "estimate": (estimate, quantity),
        _VARIANCE: (variance, f"({quantity})^2"),
        "std": (std, quantity),
        "moe": (moe, quantity),
        "lower": (estimate - moe, quantity),
        "upper": (estimate + moe, quantity),
    }
    variables = {name: (names, array, {"units": unit}) for name, (array, unit) in numbers.items()}
    meaning = "false for exact numbers that the unit of privacy makes public"
    protected = {PROTECTED: (names, find_protected(release, group), {"long_name": meaning})}
    domain = release.plan.domain
    return import_library("xarray").Dataset(
        variables | protected,
        coords={f.attribute: np.array(f.labels(domain[f.attribute])) for f in group.factors},
        attrs=make_metadata(release, group, intervals),
    )
