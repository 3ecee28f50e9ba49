"""Identifiers of SDMX for agencies, versions, attributes and labels.

By SDMX 3.0, section 3A, identifiers of codes have the type IDType, those of other objects
NCNameIDType, and those of agencies NestedNCNameIDType.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fitplug.domain import Attribute, Dates
from fitplug.errors import InputError, suggest_nearest
from fitplug.workload import Factor, QueryGroup, Workload

_COMPONENT = re.compile(r"[A-Za-z][A-Za-z0-9_\-]*")
_CODE = re.compile(r"[A-Za-z0-9_@$\-]+")
_AGENCY = re.compile(rf"{_COMPONENT.pattern}(\.{_COMPONENT.pattern})*")
_DATAFLOW = re.compile(
    rf"(?P<agency>{_AGENCY.pattern}):(?P<id>[A-Za-z0-9_@$\-]+)\((?P<version>[0-9]+(\.[0-9]+)*)\)"
)
_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")

TIME_PERIOD = "TIME_PERIOD"
"""The dimension of time, which has no list of codes."""

_NAMELESS = "ITEM"
"""The identifier of a name without any characters that identifiers may have."""


@dataclass(frozen=True)
class SdmxNames:
    """Identifiers of SDMX that a user gives; see `write_sdmx`.

    Attributes:
        dimensions: The dimension of each attribute that has one with another name.
        codes: The codes of labels, by attribute.
        dataflows: The dataflow of each group whose structure is maintained elsewhere.
    """

    dimensions: Mapping[str, str]
    codes: Mapping[str, Mapping[str, str]]
    dataflows: Mapping[str, str]

    def check(self, workload: Workload) -> None:
        """Raise InputError unless names exist, and identifiers are valid and differ."""
        for what, given, known in (
            ("dimensions", self.dimensions, workload.attributes),
            ("codes", self.codes, workload.attributes),
            ("dataflows", self.dataflows, workload.names),
        ):
            for name in given:
                if name not in known:
                    raise InputError(f"{what}: unknown {name!r}. {suggest_nearest(name, known)}")
        for dimension in self.dimensions.values():
            check_component(dimension)
        if len(set(self.dimensions.values())) < len(self.dimensions):
            raise InputError("dimensions: two attributes have the same dimension. Change one.")
        for name, codes in self.codes.items():
            check_codes(name, codes)
        for dataflow in self.dataflows.values():
            parse_dataflow(dataflow)
        for group in workload.groups:
            for factor in group.factors:
                if self.dimensions.get(factor.attribute) == TIME_PERIOD:
                    _check_time_period(group, factor, workload.domain[factor.attribute])


def _check_time_period(group: QueryGroup, factor: Factor, attribute: Attribute) -> None:
    """Raise InputError unless a group counts by dates, as the dimension TIME_PERIOD requires."""
    name = factor.attribute
    if not isinstance(attribute, Dates) or attribute.other is not None:
        raise InputError(
            "dimensions: TIME_PERIOD needs dates without 'other'. Use another dimension for "
            f"{name!r}."
        )
    if factor.kind != "identity":
        raise InputError(
            f'dimensions: TIME_PERIOD needs the query {name} = "identity" in {group.name!r}. Use '
            f"another dimension for {name!r}."
        )


def check_agency(agency: str) -> None:
    """Raise InputError unless a text identifies an agency."""
    if not _AGENCY.fullmatch(agency):
        raise InputError(
            f"agency = {agency!r} is not an SDMX identifier. Use letters, digits, _ and -, "
            "starting with a letter, such as ISTAT."
        )


def check_version(version: str) -> None:
    """Raise InputError unless a text is a version of a structure."""
    if not _VERSION.fullmatch(version):
        raise InputError(
            f"version = {version!r} is not an SDMX version. Use a version such as 1.0.0."
        )


def check_component(identifier: str) -> None:
    """Raise InputError unless a text identifies a dimension."""
    if not isinstance(identifier, str) or not _COMPONENT.fullmatch(identifier):
        raise InputError(
            f"{identifier!r} is not an SDMX dimension. Use a name such as REF_AREA or TIME_PERIOD."
        )


def check_codes(attribute: str, codes: Mapping[str, str]) -> None:
    """Raise InputError unless all codes of an attribute are identifiers of SDMX and differ."""
    for code in codes.values():
        if not isinstance(code, str) or not _CODE.fullmatch(code):
            raise InputError(
                f"codes of {attribute!r}: {code!r} is not an SDMX code. Use letters, digits, _, -, "
                "@ and $."
            )
    if len(set(codes.values())) < len(codes):
        raise InputError(f"codes of {attribute!r}: two labels have the same code. Change one code.")


def parse_dataflow(dataflow: str) -> tuple[str, str, str]:
    """Return the agency, the identifier and the version that a text names.

    Raises:
        InputError: The text names no dataflow.
    """
    match = _DATAFLOW.fullmatch(dataflow) if isinstance(dataflow, str) else None
    if match is None:
        raise InputError(
            f"{dataflow!r} is not an SDMX dataflow. Write AGENCY:ID(VERSION), such as "
            "ESTAT:DF_AGE(1.0.0)."
        )
    return match["agency"], match["id"], match["version"]


def name_codes(labels: Sequence[str], given: Mapping[str, str] | None = None) -> list[str]:
    """Choose an identifier for each label, distinct for each row.

    A label with a given code has this one. Another label that is an identifier stays as it is.
    Other characters become underscores, and numbers are added where two rows would have the same
    identifier.
    """
    known = given or {}
    others = [label for label in labels if label not in known]
    chosen = iter(_choose_identifiers(others, _CODE, list(known.values())))
    return [known[label] if label in known else next(chosen) for label in labels]


def name_components(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """Choose an identifier for each name of an attribute, as `name_codes` does for labels.

    Identifiers differ in more than case from each other and from those that are taken.
    """
    return _choose_identifiers(names, _COMPONENT, taken)


def _choose_identifiers(
    names: Sequence[str], form: re.Pattern[str], taken: Collection[str]
) -> list[str]:
    """Choose a distinct identifier of a form for each name."""
    is_component = form is _COMPONENT
    used = {_fold(name, is_component) for name in taken}
    chosen = [""] * len(names)
    for i, name in enumerate(names):
        if form.fullmatch(name) and _fold(name, is_component) not in used:
            chosen[i] = name
            used.add(_fold(name, is_component))
    numbers: Counter[str] = Counter()
    for i, name in enumerate(names):
        if chosen[i]:
            continue
        identifier = base = _replace_characters(name, is_component)
        while _fold(identifier, is_component) in used:
            numbers[base] += 1
            identifier = f"{base}_{numbers[base] + 1}"
        used.add(_fold(identifier, is_component))
        chosen[i] = identifier
    return chosen


def _replace_characters(name: str, is_component: bool) -> str:
    """Replace the characters of a name that identifiers do not have; accents are left out."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    base = re.sub(r"[^A-Za-z0-9_\-]+", "_", plain).strip("_") or _NAMELESS
    return f"A_{base}" if is_component and not base[0].isalpha() else base


def _fold(name: str, is_component: bool) -> str:
    """Return what must be distinct: components differ in more than case."""
    return name.casefold() if is_component else name
