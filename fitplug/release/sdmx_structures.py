"""The structures of SDMX that a release has: its dimensions, codes, columns and identifiers.

Each group is a dataflow with a data structure of its own, as groups differ in their dimensions.
A code list says for each identifier which label it stands for. By SDMX 3.0, section 3A, identifiers
of codes have the type IDType, those of other objects NCNameIDType, and those of agencies
NestedNCNameIDType.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from fitplug.errors import InputError
from fitplug.plan import Plan
from fitplug.release.manifest import name_files
from fitplug.workload import Factor, QueryGroup

_COMPONENT = re.compile(r"[A-Za-z][A-Za-z0-9_\-]*")
_CODE = re.compile(r"[A-Za-z0-9_@$\-]+")
_AGENCY = re.compile(rf"{_COMPONENT.pattern}(\.{_COMPONENT.pattern})*")
_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")

_NAMELESS = "ITEM"
"""What stands for a name without any character that identifiers have."""


def check_agency(agency: str) -> None:
    """Raise InputError unless a text identifies an agency."""
    if not _AGENCY.fullmatch(agency):
        raise InputError(
            f"agency = {agency!r} is no identifier of SDMX; write letters, digits, _ and -, with a "
            "letter first, such as ISTAT"
        )


def check_version(version: str) -> None:
    """Raise InputError unless a text is a version of a structure."""
    if not _VERSION.fullmatch(version):
        raise InputError(f"version = {version!r} is no version of SDMX; write one such as 1.0.0")


def name_codes(labels: Sequence[str]) -> list[str]:
    """Choose an identifier for each label, distinct for each row.

    A label that is an identifier stays as it is. Other characters become underscores, and numbers
    are added where two rows would have the same identifier.
    """
    return _choose(labels, _CODE, ())


def name_components(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """Choose an identifier for each name of an attribute, as `name_codes` does for labels.

    Identifiers differ in more than case from each other and from those that are taken.
    """
    return _choose(names, _COMPONENT, taken)


def _choose(names: Sequence[str], form: re.Pattern[str], taken: Collection[str]) -> list[str]:
    """Choose a distinct identifier of a form for each name."""
    is_component = form is _COMPONENT
    used = {_fold(name, is_component) for name in taken}
    chosen = dict.fromkeys(range(len(names)), "")
    for i, name in enumerate(names):
        if form.fullmatch(name) and _fold(name, is_component) not in used:
            chosen[i] = name
            used.add(_fold(name, is_component))
    numbers: Counter[str] = Counter()
    for i, name in enumerate(names):
        if chosen[i]:
            continue
        own = base = _replace_characters(name, is_component)
        while _fold(own, is_component) in used:
            numbers[base] += 1
            own = f"{base}_{numbers[base] + 1}"
        used.add(_fold(own, is_component))
        chosen[i] = own
    return list(chosen.values())


def _replace_characters(name: str, is_component: bool) -> str:
    """Replace the characters of a name that identifiers do not have; accents are left out."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    base = re.sub(r"[^A-Za-z0-9_\-]+", "_", plain).strip("_") or _NAMELESS
    return f"A_{base}" if is_component and not base[0].isalpha() else base


def _fold(name: str, is_component: bool) -> str:
    """Return what must be distinct: components differ in more than case."""
    return name.casefold() if is_component else name


GROUP = "QUERY_GROUP"
"""The dimension that every data structure has, so that the total of all records has one too."""

MEASURE = "OBS_VALUE"

OBSERVATION_ATTRIBUTES = {
    "STD": ("Double", "Standard deviation of the estimate: that of the noise alone"),
    "MOE": ("Double", "Margin of error: half the width of the interval"),
    "LOWER": ("Double", "Lower end of the interval"),
    "UPPER": ("Double", "Upper end of the interval"),
    "PROTECTED": ("Boolean", "False for an exact number that the unit of privacy makes public"),
}

DATASET_ATTRIBUTES = {
    "CONFIDENCE": ("Double", "Probability that an interval covers the exact answer"),
    "SIMULTANEOUS": ("Boolean", "Whether it is that all intervals of the query group cover theirs"),
    "UNIT_MEASURE": ("String", "What the estimate and its spread are numbers of"),
}

ATTRIBUTES = OBSERVATION_ATTRIBUTES | DATASET_ATTRIBUTES

CONCEPTS = {GROUP: "Query group", MEASURE: "Unbiased estimate"} | {
    name: meaning for name, (_, meaning) in ATTRIBUTES.items()
}

_COLUMNS = ("STRUCTURE", "STRUCTURE_ID", "STRUCTURE_NAME", "ACTION", "SERIES_KEY", "OBS_KEY")
_TOTAL = "_T"
"""The code for a total in SDMX's guidelines for code lists."""


@dataclass(frozen=True)
class CodeList:
    """A list of codes.

    Attributes:
        id: Its identifier.
        name: What it is a list of.
        codes: The identifier of each code.
        labels: What each code stands for.
    """

    id: str
    name: str
    codes: Sequence[str]
    labels: Sequence[str]


@dataclass(frozen=True)
class Flow:
    """A group as a dataflow.

    Attributes:
        id: The identifier of the dataflow; that of its data structure begins with DSD.
        group: The group.
        file: The name of its file.
        code: Its code in the list of groups.
        dimensions: The identifier of the dimension of each factor.
        code_lists: The list of codes of each factor.
    """

    id: str
    group: QueryGroup
    file: str
    code: str
    dimensions: Sequence[str]
    code_lists: Sequence[CodeList]

    @property
    def columns(self) -> list[str]:
        """The columns of its dimensions, its measure and its attributes."""
        return [GROUP, *self.dimensions, MEASURE, *ATTRIBUTES]


class Structures:
    """All structures of a release.

    Attributes:
        attributes: The name of each attribute, by the identifier of its dimension.
        groups: The list of groups.
        code_lists: The lists of codes of all dimensions but the one of groups.
        flows: The dataflows.
    """

    def __init__(self, plan: Plan) -> None:
        names = list(dict.fromkeys(f.attribute for g in plan.workload.groups for f in g.factors))
        ids = name_components(names, (*_COLUMNS, *CONCEPTS))
        self.attributes = dict(zip(ids, names, strict=True))
        files = name_files(plan.workload)
        codes = [files[name].upper() for name in plan.workload.names]
        self.groups = CodeList(f"CL_{GROUP}", CONCEPTS[GROUP], codes, plan.workload.names)
        self._plan = plan
        self._dimensions = dict(zip(names, ids, strict=True))
        self._lists: dict[tuple[str, Sequence[str], Sequence[str]], CodeList] = {}
        self.flows = [
            self._make_flow(group, f"{files[group.name]}.csv", code)
            for group, code in zip(plan.workload.groups, codes, strict=True)
        ]

    @property
    def code_lists(self) -> Iterator[CodeList]:
        yield from self._lists.values()

    def _make_flow(self, group: QueryGroup, file: str, code: str) -> Flow:
        """Make the dataflow of a group."""
        dimensions = [self._dimensions[factor.attribute] for factor in group.factors]
        code_lists = [self._find_list(factor) for factor in group.factors]
        return Flow(f"DF_{code}", group, file, code, dimensions, code_lists)

    def _find_list(self, factor: Factor) -> CodeList:
        """Find the list of codes of a factor, which factors with the same labels share."""
        dimension = self._dimensions[factor.attribute]
        labels = tuple(map(str, factor.labels(self._plan.domain[factor.attribute])))
        codes = (_TOTAL,) if factor.kind == "total" else tuple(name_codes(labels))
        key = (dimension, codes, labels)
        if key not in self._lists:
            number = 1 + sum(one[0] == dimension for one in self._lists)
            own = f"CL_{dimension}" if number == 1 else f"CL_{dimension}-{number}"
            self._lists[key] = CodeList(own, factor.attribute, codes, labels)
        return self._lists[key]
