"""A kind of attribute of another package, as its entry point `fitplug.attributes` names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

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
