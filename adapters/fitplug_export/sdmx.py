"""SDMX: an SDMX-CSV 2.0 file for each group, and the message with the structures of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

from fitplug.files import fill_new_folder, import_library
from fitplug.releases import Release
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence
from fitplug_export.answers import check_export_names
from fitplug_export.sdmx_identifiers import SdmxNames, check_agency, check_version


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

    Each group is a dataflow with a data structure of its own. If a label is not a valid SDMX
    identifier, an identifier is made for it; the code lists show both.

    Args:
        release: The release.
        folder: The folder, which must be new or empty.
        agency: The identifier of the agency that maintains the structures, such as "ISTAT".
        version: The version of the structures. If an agency publishes different structures for
            groups of the same name, they need different versions.
        confidence: The confidence of the intervals, for groups whose target has no confidence.
        dimensions: {attribute: dimension}, such as {"MONTH": "TIME_PERIOD", "STATE": "REF_AREA"},
            for attributes whose SDMX dimension has a different name. TIME_PERIOD needs a
            `fitplug.Dates` attribute without `other`, queried by "identity".
        codes: {attribute: {label: code}}: the SDMX codes for labels that tables show.
        dataflows: {group: dataflow}, such as {"pyramid": "ESTAT:DF_AGE(1.0.0)"}, for groups whose
            structure is maintained elsewhere. The files of these groups have no dimension
            QUERY_GROUP, and structures.xml has only their codes.

    Raises:
        ImportError: pysdmx is not installed.
        InputError: The folder is not empty, or an SDMX identifier is invalid or not unique.
        WorkloadError: The confidence is out of range, or an attribute has the same name as a column
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
