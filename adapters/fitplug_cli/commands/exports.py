"""`fitplug export`: it writes a release in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fitplug.errors import InputError
from fitplug.release import Release
from fitplug.workload import check_confidence
from fitplug_cli.render import out

FORMATS = ("sdmx-csv", "frictionless")


class SdmxOptions(NamedTuple):
    """The options of SDMX.

    Attributes:
        agency: The identifier of the agency that maintains the structures.
        version: The version of the structures.
    """

    agency: str
    version: str


def read_sdmx_options(
    export_format: str, agency: str | None, version: str | None
) -> SdmxOptions | None:
    """Check the options of a format.

    Args:
        export_format: The format of --format.
        agency: The agency of --agency.
        version: The version of --structure-version.

    Returns:
        The options of SDMX; None for the format frictionless.

    Raises:
        InputError: If there is no such format, or the options do not fit it.
    """
    if export_format not in FORMATS:
        raise InputError(f"--format {export_format}: write one of {' and '.join(FORMATS)}")
    if export_format == "frictionless":
        if agency is not None or version is not None:
            raise InputError("--agency and --structure-version are of --format sdmx-csv")
        return None
    if agency is None:
        raise InputError("structures of SDMX belong to an agency; give its identifier as --agency")
    return SdmxOptions(agency, version or "1.0.0")


def export_release(folder: str, output: Path, sdmx: SdmxOptions | None, confidence: float) -> None:
    """Write a release as SDMX-CSV or as a data package.

    Args:
        folder: The folder of the release, or the URL of a release in parts.
        output: The folder to write.
        sdmx: The options of SDMX; None for a data package.
        confidence: The confidence of the intervals of groups whose target has none.

    Raises:
        InputError: If the release cannot be read, or an option is wrong.
        OSError: If the folder cannot be written.
    """
    check_confidence(confidence)
    release = Release.read(folder)
    if sdmx is None:
        release.write_data_package(output, confidence=confidence)
    else:
        release.write_sdmx(output, confidence=confidence, **sdmx._asdict())
    out.print(f"{len(release.plan.workload.groups)} tables written: {output}")
