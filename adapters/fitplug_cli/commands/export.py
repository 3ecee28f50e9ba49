"""`fitplug export`: it writes a release in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from fitplug.errors import InputError
from fitplug.release import Release
from fitplug.workload import check_confidence
from fitplug_cli.options import ConfidenceOption, QuietOption
from fitplug_cli.render import out, set_up_output

FORMATS = ("sdmx-csv", "frictionless")


def export(
    folder: Annotated[str, typer.Argument(help="Folder of a release, or its URL.", metavar="OUT")],
    output: Annotated[Path, typer.Option("--output", help="The folder to write, new or empty.")],
    export_format: Annotated[
        str, typer.Option("--format", help="sdmx-csv or frictionless.", metavar="FORMAT")
    ],
    agency: Annotated[
        str | None,
        typer.Option("--agency", help="With sdmx-csv: the agency that maintains the structures."),
    ] = None,
    structure_version: Annotated[
        str | None,
        typer.Option(
            "--structure-version",
            help="With sdmx-csv: the version of the structures. [default: 1.0.0]",
        ),
    ] = None,
    confidence: ConfidenceOption = 0.95,
    quiet: QuietOption = False,
) -> None:
    """Write a release for other tools, with std and margins of error. No data is read."""
    set_up_output(quiet=quiet, as_json=False)
    sdmx = read_sdmx_options(export_format, agency, structure_version)
    check_confidence(confidence)
    release = Release.read(folder)
    if sdmx is None:
        release.write_data_package(output, confidence=confidence)
    else:
        release.write_sdmx(output, confidence=confidence, **sdmx._asdict())
    out.print(f"{len(release.plan.workload.groups)} tables written: {output}")


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
