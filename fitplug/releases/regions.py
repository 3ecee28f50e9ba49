"""Outlines of regions from GeoJSON (RFC 7946), joined to labels by a code, for maps."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fitplug.display import add_polygons
from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray

Regions: TypeAlias = "str | PathLike[str] | Mapping[str, Any] | tuple[Any, str]"
"""A GeoJSON file or its content, alone or with the property that holds the codes."""


@dataclass(frozen=True, eq=False)
class Outlines:
    """Regions and their outlines.

    Attributes:
        rings: The closed rings of each region with a label, each ring of shape (points, 2).
        rows: The index of each such region's label.
        others: The rings of the regions that no label names.
    """

    rings: list[list[FloatArray]]
    rows: list[int]
    others: list[list[FloatArray]]


def read_regions(regions: Regions, labels: Sequence[str]) -> Outlines:
    """Read the outlines of the regions that labels name.

    Args:
        regions: GeoJSON with a FeatureCollection of Polygons and MultiPolygons. Without a
            property, the codes are the features' `id`, or the first property whose values include
            all labels.
        labels: The codes of the regions.

    Raises:
        WorkloadError: This is not such GeoJSON, or some label has no region.
    """
    content, code = regions if isinstance(regions, tuple) else (regions, None)
    if not isinstance(content, Mapping):
        try:
            content = json.loads(Path(content).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise WorkloadError(f"cannot read the GeoJSON file of the regions: {error}") from None
    features = content.get("features") if isinstance(content, Mapping) else None
    if not isinstance(features, list) or not features:
        raise WorkloadError(
            "regions= must be a GeoJSON FeatureCollection with at least one feature"
        )
    codes = _find_codes(features, code, labels)
    row_of = {label: row for row, label in enumerate(labels)}
    outlines = Outlines([], [], [])
    for feature, name in zip(features, codes, strict=True):
        rings = _read_rings(feature.get("geometry") or {})
        if name in row_of:
            outlines.rings.append(rings)
            outlines.rows.append(row_of[name])
        else:
            outlines.others.append(rings)
    return outlines


def _find_codes(
    features: list[dict[str, Any]], code: str | None, labels: Sequence[str]
) -> list[str]:
    """Find the code of each feature."""
    properties = [feature.get("properties") or {} for feature in features]
    names = list(dict.fromkeys(key for found in properties for key in found))
    columns = {"id": [str(feature.get("id")) for feature in features]}
    for name in names:
        columns.setdefault(name, [str(found.get(name)) for found in properties])
    if code is not None:
        if code not in columns:
            raise WorkloadError(
                f"the regions have no property {code!r}. Their properties are {names}."
            )
        columns = {code: columns[code]}
    for column in columns.values():
        if set(labels) <= set(column):
            return column
    most = max(columns.values(), key=lambda column: len(set(labels) & set(column)))
    missing = [label for label in labels if label not in set(most)]
    raise WorkloadError(
        f"{len(missing)} of {len(labels)} labels have no region, for example {missing[0]!r}. Name "
        f"the property of the labels, as regions=(file, property): {[*names, 'id']}."
    )


def _read_rings(geometry: Mapping[str, Any]) -> list[FloatArray]:
    """Read the rings of a Polygon or MultiPolygon."""
    kind: object = geometry.get("type")
    parts: Any = geometry.get("coordinates")
    if kind == "Polygon":
        parts = [parts]
    elif kind != "MultiPolygon":
        raise WorkloadError(f"regions must be Polygons or MultiPolygons, not {kind}")
    try:
        return [np.asarray(ring, np.float64)[:, :2] for part in parts for ring in part]
    except (TypeError, ValueError, IndexError):
        raise WorkloadError(
            "the coordinates of a region are not rings of points. Correct the GeoJSON file."
        ) from None


def draw_outlines(
    axes: Any, outlines: Outlines, values: FloatArray, *, other: str, **colours: Any
) -> Any:
    """Draw each region in the colour of its value, and all other regions in one colour.

    Returns:
        The matplotlib collection, for a colour bar.
    """
    drawn = add_polygons(axes, outlines.rings, lw=0.4, **colours)
    drawn.set_edgecolor(axes.get_facecolor())
    drawn.set_array(values)
    if outlines.others:
        add_polygons(axes, outlines.others, facecolors=other, lw=0)
    axes.autoscale_view()
    _, _, south, north = axes.axis()
    if -90 <= south <= north <= 90:  # degrees: a degree of longitude is shorter
        axes.set_aspect(1 / max(math.cos(math.radians((south + north) / 2)), 0.05))
    else:
        axes.set_aspect(1)
    return drawn
