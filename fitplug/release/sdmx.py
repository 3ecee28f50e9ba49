"""SDMX: an SDMX-CSV 2.0 file for each group, and the message with the structures of all of them.

The columns are those of the field guide of SDMX-CSV 2.0.0
(https://github.com/sdmx-twg/sdmx-csv/blob/v2.0.0/data-message/docs/sdmx-csv-field-guide.md). The
elements of the message stand in the order of the schemas of SDMX-ML 3.0.0
(https://github.com/sdmx-twg/sdmx-ml/tree/v3.0.0/schemas).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from os import PathLike
from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent, register_namespace

from fitplug.files import fill_new_folder
from fitplug.release.exports import check_export_names, iterate_answers, write_rows
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.sdmx_structures import (
    ATTRIBUTES,
    CONCEPTS,
    GROUP,
    MEASURE,
    OBSERVATION_ATTRIBUTES,
    CodeList,
    Flow,
    Structures,
    check_agency,
    check_version,
)
from fitplug.release.tables import choose_intervals, make_metadata

_SCHEMAS = "http://www.sdmx.org/resources/sdmxml/schemas/v3_0"
_MESSAGE, _STRUCTURE, _COMMON = (
    f"{_SCHEMAS}/{part}" for part in ("message", "structure", "common")
)
_URN = "urn:sdmx:org.sdmx.infomodel"
_SCHEME = "CS_RELEASE"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class MessageWriter:
    """What writes the structure message of an agency.

    Attributes:
        agency: The identifier of the agency that maintains the structures.
        version: The version of the structures.
    """

    def __init__(self, agency: str, version: str) -> None:
        self.agency = agency
        self.version = version

    def name_structure(self, identifier: str) -> str:
        """Return the name of a structure, with its agency and version."""
        return f"{self.agency}:{identifier}({self.version})"

    def write(
        self,
        path: Path,
        structures: Structures,
        description: str,
        notes: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Write the message.

        Args:
            path: The file.
            structures: The structures.
            description: Which records the data are about.
            notes: What the data of each group are, by the identifier of the dataflow.

        Raises:
            OSError: The file cannot be written.
        """
        for prefix, space in {"mes": _MESSAGE, "str": _STRUCTURE, "com": _COMMON}.items():
            register_namespace(prefix, space)
        root = Element(f"{{{_MESSAGE}}}Structure")
        self._add_header(root)
        body = SubElement(root, f"{{{_MESSAGE}}}Structures")
        flows = _add(body, "Dataflows")
        for flow in structures.flows:
            self._add_flow(flows, flow, description, notes[flow.id])
        lists = _add(body, "Codelists")
        for one in (structures.groups, *structures.code_lists):
            self._add_list(lists, one)
        self._add_concepts(_add(body, "ConceptSchemes"), structures.attributes)
        kinds = _add(body, "DataStructures")
        for flow in structures.flows:
            self._add_data_structure(kinds, flow)
        indent(root)
        ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)

    def _add_header(self, root: Element) -> None:
        header = SubElement(root, f"{{{_MESSAGE}}}Header")
        prepared = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        for tag, text in {"ID": "release", "Test": "false", "Prepared": prepared}.items():
            SubElement(header, f"{{{_MESSAGE}}}{tag}").text = text
        # A sender has no dots in its identifier: it is the organisation that comes first.
        SubElement(header, f"{{{_MESSAGE}}}Sender", id=self.agency.partition(".")[0])

    def _add_structure(self, parent: Element, tag: str, identifier: str) -> Element:
        """Add a structure that the agency maintains."""
        return _add(parent, tag, id=identifier, agencyID=self.agency, version=self.version)

    def _add_flow(
        self, parent: Element, flow: Flow, description: str, notes: Mapping[str, str]
    ) -> None:
        own = self._add_structure(parent, "Dataflow", flow.id)
        annotations = SubElement(own, f"{{{_COMMON}}}Annotations")
        for key, text in notes.items():
            note = SubElement(annotations, f"{{{_COMMON}}}Annotation", id=key)
            _add_text(note, "AnnotationText", text)
        _add_text(own, "Name", flow.group.name)
        _add_text(own, "Description", description)
        reference = self.name_structure(_name_data_structure(flow))
        _add(own, "Structure").text = f"{_URN}.datastructure.DataStructure={reference}"

    def _add_list(self, parent: Element, one: CodeList) -> None:
        own = self._add_structure(parent, "Codelist", one.id)
        _add_text(own, "Name", one.name)
        for code, label in zip(one.codes, one.labels, strict=True):
            _add_text(_add(own, "Code", id=code), "Name", label or code)

    def _add_concepts(self, parent: Element, attributes: Mapping[str, str]) -> None:
        own = self._add_structure(parent, "ConceptScheme", _SCHEME)
        _add_text(own, "Name", "Dimensions, measure and attributes of a release")
        for identifier, name in {**attributes, **CONCEPTS}.items():
            _add_text(_add(own, "Concept", id=identifier), "Name", name)

    def _add_data_structure(self, parent: Element, flow: Flow) -> None:
        own = self._add_structure(parent, "DataStructure", _name_data_structure(flow))
        _add_text(own, "Name", flow.group.name)
        parts = _add(own, "DataStructureComponents")
        dimensions = _add(parts, "DimensionList", id="DimensionDescriptor")
        lists = [f"CL_{GROUP}", *(one.id for one in flow.code_lists)]
        for position, (name, one) in enumerate(
            zip((GROUP, *flow.dimensions), lists, strict=True), start=1
        ):
            dimension = self._add_component(dimensions, "Dimension", name)
            dimension.set("position", str(position))
            enumeration = _add(_add(dimension, "LocalRepresentation"), "Enumeration")
            enumeration.text = f"{_URN}.codelist.Codelist={self.name_structure(one)}"
        attributes = _add(parts, "AttributeList", id="AttributeDescriptor")
        for name, (text_type, _) in ATTRIBUTES.items():
            attribute = self._add_component(attributes, "Attribute", name, usage="mandatory")
            _add(_add(attribute, "LocalRepresentation"), "TextFormat", textType=text_type)
            of_each = name in OBSERVATION_ATTRIBUTES
            _add(_add(attribute, "AttributeRelationship"), "Observation" if of_each else "Dataflow")
        measures = _add(parts, "MeasureList", id="MeasureDescriptor")
        measure = self._add_component(measures, "Measure", MEASURE, usage="mandatory")
        _add(_add(measure, "LocalRepresentation"), "TextFormat", textType="Double")

    def _add_component(self, parent: Element, tag: str, name: str, **given: str) -> Element:
        """Add a component of a data structure, which has a concept of the same name."""
        own = _add(parent, tag, id=name, **given)
        concept = f"{self.name_structure(_SCHEME)}.{name}"
        _add(own, "ConceptIdentity").text = f"{_URN}.conceptscheme.Concept={concept}"
        return own


def _name_data_structure(flow: Flow) -> str:
    return f"DSD_{flow.code}"


def _add(parent: Element, tag: str, **given: str) -> Element:
    """Add an element of a structure."""
    return SubElement(parent, f"{{{_STRUCTURE}}}{tag}", given)


def _add_text(parent: Element, tag: str, text: str) -> None:
    """Add a text in English, without the characters that XML does not allow."""
    own = SubElement(parent, f"{{{_COMMON}}}{tag}")
    own.set("{http://www.w3.org/XML/1998/namespace}lang", "en")
    own.text = _NO_XML.sub("\ufffd", text)


STRUCTURES = "structures.xml"

_ACTION = "I"
"""The data are for information."""


def write_sdmx(
    release: NoisyAnswers,
    directory: str | PathLike[str],
    agency: str,
    version: str,
    confidence: float,
) -> None:
    """Write a release as SDMX-CSV with its structures; see `Release.write_sdmx`."""
    check_agency(agency)
    check_version(version)
    for group in release.plan.workload.groups:
        check_export_names(group)
    structures, message = Structures(release.plan), MessageWriter(agency, version)
    with fill_new_folder(directory) as folder:
        notes = {}
        for flow in structures.flows:
            intervals = choose_intervals(flow.group, None, default=confidence)
            notes[flow.id] = make_metadata(release, flow.group, intervals)
            before = ("dataflow", message.name_structure(flow.id), _ACTION, flow.code)
            simultaneous = str(intervals.simultaneous).lower()
            after = (intervals.confidence, simultaneous, flow.group.quantity)
            codes = [one.codes for one in flow.code_lists]
            answers = iterate_answers(release, flow.group, intervals, codes)
            write_rows(
                folder / flow.file,
                ["STRUCTURE", "STRUCTURE_ID", "ACTION", *flow.columns],
                ((*before, *answer, *after) for answer in answers),
            )
        message.write(folder / STRUCTURES, structures, release.population, notes)
