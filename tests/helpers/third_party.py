"""What another package brings along: a kind of attribute, and an export.

Its entry points name them, in the groups `fitplug.attributes` and `fitplug.exports`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import fitplug as fp
from fitplug.domain import Attribute, Codec, SpecForm
from fitplug.errors import DataError, DomainError


@dataclass(frozen=True)
class Angles(Attribute):
    """Angles in whole degrees, from 0 in equal steps."""

    steps: int
    other: str | None = None

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(f"{360 * step // self.steps}°" for step in range(self.steps))


class AnglesCodec(Codec, kind=Angles):
    attribute: Angles
    spec_form: ClassVar[SpecForm] = SpecForm("{ angles = steps }", names=("angles",))
    value_type: ClassVar[type] = int
    is_ordered: ClassVar[bool] = True

    def codes(self, values: Any) -> Any:
        given = np.asarray(values).tolist()
        return np.array([self._find_code(value) for value in given], dtype=np.int64)

    def _find_code(self, value: Any) -> int:
        if value is None or value != value:
            return self.null_code
        if type(value) is not int:
            raise DataError(f"the domain expects integers, but the column has {type(value)}")
        return value * self.attribute.steps // 360 if 0 <= value < 360 else self.null_code

    def find_end(self, value: Any) -> int | None:
        return self.values.index(value) if value in self.values else None

    def remedy(self, names: str) -> str:
        return f"fewer angles of {names}"

    def spec(self) -> Any:
        return {"angles": self.attribute.steps, **self._spec_of_other()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Angles:
        if type(spec["angles"]) is not int or spec["angles"] < 1:
            raise DomainError("angles must be a positive integer")
        return Angles(spec["angles"], spec.get("other"))


ANGLES = {0: 0, 89: 0, 90: 1, 180: 2, 270: 3, 359: 3, 360: None, -1: None}
"""The cells of `Angles(4)`."""


def write_lines(release: fp.Release, folder: Path, *, confidence: float = 0.95) -> None:
    """Write a CSV file for each group, named by its number."""
    folder.mkdir(exist_ok=True)
    for number, group in enumerate(release.plan.workload.groups):
        table = release.to_arrow(group.name, confidence=group.target.confidence or confidence)
        with (folder / f"{number}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, table.column_names)
            writer.writeheader()
            writer.writerows(table.to_pylist())


def install(folder: Path) -> Path:
    """Write what Python reads of an installed package, and return the folder for `sys.path`."""
    written = folder / "third_party-1.dist-info"
    written.mkdir(parents=True)
    (written / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1\n")
    (written / "entry_points.txt").write_text(
        f"[fitplug.attributes]\nangles = {__name__}\n\n"
        f"[fitplug.exports]\nlines = {__name__}:write_lines\n"
    )
    return folder
