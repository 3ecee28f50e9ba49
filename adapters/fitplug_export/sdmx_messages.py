"""The structures and the data of a release in the classes of pysdmx, which writes them.

Each group is a dataflow with a data structure of its own, as groups differ in their dimensions.
A code list says for each identifier which label it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas
from pysdmx.io import write_sdmx
from pysdmx.io.format import Format
from pysdmx.io.pd import PandasDataset
from pysdmx.model import (
    Annotation,
    Code,
    Codelist,
    Component,
    Components,
    Concept,
    ConceptScheme,
    Dataflow,
    DataStructureDefinition,
    DataType,
    ItemReference,
    Organisation,
    Role,
    Schema,
)
from pysdmx.model.message import Header

from fitplug.domain import label_values
from fitplug.plan import Plan
from fitplug.releases import Intervals, Release, choose_intervals, make_metadata, name_files
from fitplug.workload import Factor, QueryGroup
from fitplug_export.answers import iterate_columns
from fitplug_export.sdmx_identifiers import (
    TIME_PERIOD,
    SdmxNames,
    name_codes,
    name_components,
    parse_dataflow,
)

STRUCTURES = "structures.xml"

_SCHEME = "CS_RELEASE"

_GROUP = "QUERY_GROUP"
"""The dimension that every data structure has, so that the total of all rows has one too."""

_MEASURE = "OBS_VALUE"

_OBSERVATION_ATTRIBUTES = {
    "STD": (DataType.DOUBLE, "Standard deviation of the noise in the estimate"),
    "MOE": (DataType.DOUBLE, "Margin of error: half the width of the interval"),
    "LOWER": (DataType.DOUBLE, "Lower end of the interval"),
    "UPPER": (DataType.DOUBLE, "Upper end of the interval"),
    "PROTECTED": (
        DataType.BOOLEAN,
        "False for an exact number that the unit of privacy makes public",
    ),
}

_DATASET_ATTRIBUTES = {
    "CONFIDENCE": (DataType.DOUBLE, "Probability that an interval covers the exact answer"),
    "SIMULTANEOUS": (
        DataType.BOOLEAN,
        "Whether the confidence is the probability that all intervals cover their answers",
    ),
    "UNIT_MEASURE": (DataType.STRING, "Unit of the estimate and of its spread"),
}

_CONCEPTS = {_GROUP: "Query group", _MEASURE: "Unbiased estimate"} | {
    name: meaning for name, (_, meaning) in (_OBSERVATION_ATTRIBUTES | _DATASET_ATTRIBUTES).items()
}

_RESERVED = ("STRUCTURE", "STRUCTURE_ID", "STRUCTURE_NAME", "ACTION", "SERIES_KEY", "OBS_KEY")
"""The columns of SDMX-CSV that are not components."""

_TOTAL = "_T"
"""The code for a total in SDMX's guidelines for code lists."""

_MEASURE_RELATIONSHIP = re.compile(
    r"\s*<str:MeasureRelationship>.*?</str:MeasureRelationship>", re.DOTALL
)
"""An element that is optional if there is only one measure, and that sdmx1 cannot read."""

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_messages(
    release: Release, folder: Path, agency: str, version: str, confidence: float, names: SdmxNames
) -> None:
    """Write the data of each group and the structures of all; see `write_sdmx`."""
    structures = _Structures(release.plan, agency, version, names)
    flows = []
    for group in release.plan.workload.groups:
        intervals = choose_intervals(group, None, default=confidence)
        definition = structures.define_group(group)
        named = (agency, f"DF_{structures.codes[group.name]}", version)
        if group.name in names.dataflows:
            named = parse_dataflow(names.dataflows[group.name])
        flow = Dataflow(
            named[1],
            name=_clean(group.name),
            description=_clean(release.population),
            agency=named[0],
            version=named[2],
            structure=definition,
            annotations=tuple(
                Annotation(id=key, text=_clean(text))
                for key, text in make_metadata(release, group, intervals).items()
            ),
        )
        if group.name not in names.dataflows:
            flows.append(flow)
        path = folder / f"{structures.files[group.name]}.csv"
        factors = structures.sort_factors(group)
        code = structures.codes[group.name]
        _write_data(path, release, group, factors, intervals, flow, code)
    definitions = [flow.structure for flow in flows]
    message = write_sdmx(
        [*flows, *structures.code_lists, structures.concepts, *definitions],
        Format.STRUCTURE_SDMX_ML_3_0,
        # A sender has no dots in its identifier: it is the organisation that comes first.
        header=Header(id="release", sender=Organisation(agency.partition(".")[0])),
    )
    (folder / STRUCTURES).write_text(_MEASURE_RELATIONSHIP.sub("", message), encoding="utf-8")


class _Structures:
    """The structures of a release.

    Attributes:
        files: The name of each group's file, without its ending.
        codes: The code of each group.
        concepts: The concepts of all dimensions, the measure and the attributes.
    """

    def __init__(self, plan: Plan, agency: str, version: str, given: SdmxNames) -> None:
        self._given = given
        self._agency, self._version = agency, version
        self._domain = plan.domain
        self.files = name_files(plan.workload)
        self.codes = {name: file.upper() for name, file in self.files.items()}
        self._groups = self._make_list(
            f"CL_{_GROUP}", _CONCEPTS[_GROUP], list(self.codes.values()), list(self.codes)
        )
        names = list(dict.fromkeys(f.attribute for g in plan.workload.groups for f in g.factors))
        taken = (*_RESERVED, *_CONCEPTS, *given.dimensions.values())
        others = [name for name in names if name not in given.dimensions]
        chosen = dict(zip(others, name_components(others, taken), strict=True))
        identifiers = [given.dimensions.get(name) or chosen[name] for name in names]
        self._dimensions = dict(zip(names, identifiers, strict=True))
        self.concepts = ConceptScheme(
            _SCHEME,
            name="Dimensions, measure and attributes of a release",
            agency=agency,
            version=version,
            items=[
                Concept(identifier, name=_clean(name))
                for identifier, name in (
                    *zip(identifiers, names, strict=True),
                    *_CONCEPTS.items(),
                )
            ],
        )
        self._lists: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Codelist] = {}

    @property
    def code_lists(self) -> list[Codelist]:
        """The groups' list, and those of all dimensions of the groups that were defined."""
        return [self._groups, *self._lists.values()]

    def sort_factors(self, group: QueryGroup) -> list[Factor]:
        """Sort the factors of a group as its data structure does, which has time last."""
        return sorted(group.factors, key=lambda f: self._dimensions[f.attribute] == TIME_PERIOD)

    def define_group(self, group: QueryGroup) -> DataStructureDefinition:
        """Define the data structure of a group."""
        components = []
        if group.name not in self._given.dataflows:
            components = [self._make_component(_GROUP, Role.DIMENSION, codes=self._groups)]
        for factor in self.sort_factors(group):
            name = self._dimensions[factor.attribute]
            is_time = name == TIME_PERIOD
            kind = DataType.PERIOD if is_time else None
            codes = None if is_time else self._find_list(factor)
            components.append(self._make_component(name, Role.DIMENSION, kind, codes=codes))
        components.append(self._make_component(_MEASURE, Role.MEASURE, DataType.DOUBLE))
        for attributes, level in ((_OBSERVATION_ATTRIBUTES, "O"), (_DATASET_ATTRIBUTES, "D")):
            components += [
                self._make_component(name, Role.ATTRIBUTE, kind, level=level)
                for name, (kind, _) in attributes.items()
            ]
        return DataStructureDefinition(
            f"DSD_{self.codes[group.name]}",
            name=_clean(group.name),
            agency=self._agency,
            version=self._version,
            components=Components(components),
        )

    def _make_component(
        self,
        name: str,
        role: Role,
        kind: DataType | None = None,
        *,
        codes: Codelist | None = None,
        level: str | None = None,
    ) -> Component:
        """Make a component of a data structure, which has a concept of the same name."""
        concept = ItemReference("Concept", self._agency, _SCHEME, self._version, name)
        return Component(
            name,
            True,
            role,
            concept,
            local_dtype=kind,
            local_codes=codes,
            attachment_level=level,
        )

    def _find_list(self, factor: Factor) -> Codelist:
        """Find the list of codes of a factor, which factors with the same labels share."""
        dimension = self._dimensions[factor.attribute]
        values = tuple(map(str, factor.labels(self._domain[factor.attribute])))
        codes = (
            (_TOTAL,)
            if factor.kind == "total"
            else tuple(name_codes(values, self._given.codes.get(factor.attribute)))
        )
        key = (dimension, codes, values)
        if key not in self._lists:
            number = 1 + sum(other[0] == dimension for other in self._lists)
            name = f"CL_{dimension}" if number == 1 else f"CL_{dimension}-{number}"
            labels = label_values(self._domain, factor.attribute, factor.kind, values)
            self._lists[key] = self._make_list(name, factor.attribute, codes, labels or values)
        return self._lists[key]

    def _make_list(
        self, identifier: str, name: str, codes: Sequence[str], labels: Sequence[str]
    ) -> Codelist:
        """Make a list of codes with what each stands for; a code without a label is its name."""
        return Codelist(
            identifier,
            name=_clean(name),
            agency=self._agency,
            version=self._version,
            items=[
                Code(code, name=_clean(label or code))
                for code, label in zip(codes, labels, strict=True)
            ],
        )


def _write_data(
    path: Path,
    release: Release,
    group: QueryGroup,
    factors: Sequence[Factor],
    intervals: Intervals,
    flow: Dataflow,
    code: str,
) -> None:
    """Write the SDMX-CSV of a group part by part; `factors` are in the order of its structure."""
    components = flow.structure.components
    schema = Schema("dataflow", flow.agency, flow.id, components, flow.version)
    dimensions = [one for one in components.dimensions if one.id != _GROUP]
    domain = release.plan.domain
    labels = [
        factor.labels(domain[factor.attribute])
        if one.local_codes is None
        else [item.id for item in one.local_codes.items]
        for one, factor in zip(dimensions, factors, strict=True)
    ]
    order = [factors.index(factor) for factor in group.factors]
    labels = [labels[i] for i in order]
    names = [*(dimensions[i].id for i in order), _MEASURE, *_OBSERVATION_ATTRIBUTES]
    attributes = {
        "CONFIDENCE": repr(intervals.confidence),
        "SIMULTANEOUS": _write_flag(intervals.simultaneous),
        "UNIT_MEASURE": group.quantity,
    }
    with path.open("w", encoding="utf-8", newline="") as file:
        for number, columns in enumerate(iterate_columns(release, group, intervals, labels)):
            frame = pandas.DataFrame(dict(zip(names, columns, strict=True)))
            if len(dimensions) < len(components.dimensions):
                frame.insert(0, _GROUP, code)
            dataset = PandasDataset(structure=schema, data=frame, attributes=attributes)
            # pysdmx writes True and False, which are not the words of SDMX.
            dataset.data["PROTECTED"] = [_write_flag(flag) for flag in columns[-1]]
            text = write_sdmx([dataset], Format.DATA_SDMX_CSV_2_0_0)
            file.write(text if number == 0 else text.partition("\n")[2])


def _write_flag(flag: bool) -> str:
    return "true" if flag else "false"


def _clean(text: str) -> str:
    """Replace the characters that XML does not allow."""
    return _NO_XML.sub("\ufffd", text)
