"""SDMX: an SDMX-CSV 2.0 file for each group, and the message with the structures of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from fitplug.domain import Dates
from fitplug.errors import InputError, suggest_nearest
from fitplug.files import fill_new_folder, import_library
from fitplug.releases import Release
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence
from fitplug_export.answers import check_export_names
from fitplug_export.sdmx_identifiers import (
    check_agency,
    check_codes,
    check_component,
    check_version,
    parse_dataflow,
)

if TYPE_CHECKING:
    from fitplug.workload import Workload

TIME_PERIOD = "TIME_PERIOD"
"""The dimension of time, which has no list of codes."""


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
            raise InputError("dimensions: two attributes have one dimension. Rename one.")
        for name, codes in self.codes.items():
            check_codes(name, codes)
        for dataflow in self.dataflows.values():
            parse_dataflow(dataflow)
        for group in workload.groups:
            for factor in group.factors:
                attribute = workload.domain[factor.attribute]
                if self.dimensions.get(factor.attribute) == TIME_PERIOD and not (
                    isinstance(attribute, Dates)
                    and attribute.other is None
                    and factor.kind == "identity"
                ):
                    raise InputError(
                        f"dimensions: TIME_PERIOD needs dates without other, and {group.name!r} "
                        f'must ask for {factor.attribute!r} by "identity". Use another dimension.'
                    )


def write_sdmx(
    release: Release,
    folder: str | PathLike[str],
    *,
    agency: str,
    version: str = "1.0.0",
    confidence: float = DEFAULT_CONFIDENCE,
    dimensions: Mapping[str, str] | None = None,
    codes: Mapping[str, Mapping[str, str]] | None = None,
    dataflows: Mapping[str, str] | None = None,
) -> None:
    """Write SDMX-CSV 2.0: a file for each group, and structures.xml in SDMX-ML 3.0.

    Each group is a dataflow with a data structure of its own. Labels that are no identifiers
    of SDMX get one, and the code lists say what each stands for.

    Args:
        release: The release.
        folder: The folder, which must be new or empty.
        agency: The identifier of the agency that maintains the structures, such as "ISTAT".
        version: The version of the structures. Structures of one agency that differ need
            different versions, or groups with different names.
        confidence: The confidence of the intervals of groups whose target has none.
        dimensions: {attribute: dimension}, such as {"MONTH": "TIME_PERIOD", "STATE": "REF_AREA"},
            for dimensions with another name. TIME_PERIOD needs `fitplug.Dates` without `other`,
            whose cells groups list ("identity").
        codes: {attribute: {label: code}}, for labels with a code of their own, by the labels that
            tables show.
        dataflows: {group: dataflow}, such as {"pyramid": "ESTAT:DF_AGE(1.0.0)"}, for groups whose
            structure is maintained elsewhere. Their files have no dimension QUERY_GROUP, and
            structures.xml leaves them out, except for the codes.

    Raises:
        ImportError: pysdmx is not installed.
        InputError: The folder is not empty, or an identifier is not one of SDMX or is not unique.
        WorkloadError: The confidence is out of range, or an attribute has the name of a column
            of results.
        OSError: The folder cannot be written.
    """
    check_confidence(confidence)
    check_agency(agency)
    check_version(version)
    workload = release.plan.workload
    for group in workload.groups:
        check_export_names(group)
    maps = SdmxNames(dimensions or {}, codes or {}, dataflows or {})
    maps.check(workload)
    for module in ("pysdmx.io.pd", "pysdmx.io.xml"):
        import_library(module, "sdmx")
    from fitplug_export.sdmx_messages import write_messages

    with fill_new_folder(folder) as new_folder:
        write_messages(release, new_folder, agency, version, confidence, maps)
