"""`fitplug export`: a release in the formats of other tools."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from fitplug.errors import InputError
from fitplug.releases import Release
from fitplug.workload import check_confidence
from fitplug_cli.inputs.code_files import CodeFile
from fitplug_cli.options import ConfidenceOption, JsonOption, QuietOption
from fitplug_cli.render import print_facts, print_json, set_up_output
from fitplug_export import write_data_package, write_sdmx

FORMATS = ("sdmx-csv", "frictionless")

_GROUP = "fitplug.exports"
"""The entry points by which other packages name their formats and functions that write them."""


def export(
    folder: Annotated[
        str, typer.Argument(help="Folder of a release, or its URL.", metavar="RELEASE")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="New or empty folder to write.")],
    export_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="sdmx-csv, frictionless, or a format that another package adds.",
            metavar="FORMAT",
        ),
    ],
    agency: Annotated[
        str | None,
        typer.Option(
            "--agency", help="For sdmx-csv: agency that maintains the structures, such as ISTAT."
        ),
    ] = None,
    structure_version: Annotated[
        str | None,
        typer.Option(
            "--structure-version",
            help="For sdmx-csv: version of the structures. [default: 1.0.0]",
        ),
    ] = None,
    dimensions: Annotated[
        list[str] | None,
        typer.Option(
            "--dimension",
            help="For sdmx-csv: SDMX dimension for an attribute, such as MONTH=TIME_PERIOD.",
            metavar="ATTRIBUTE=DIMENSION",
        ),
    ] = None,
    codes: Annotated[
        list[str] | None,
        typer.Option(
            "--codes",
            help="For sdmx-csv: file with your own codes, in the columns value and code.",
            metavar="ATTRIBUTE=FILE",
        ),
    ] = None,
    dataflows: Annotated[
        list[str] | None,
        typer.Option(
            "--dataflow",
            help="For sdmx-csv: dataflow for a table whose structure another agency maintains.",
            metavar="TABLE=AGENCY:ID(VERSION)",
        ),
    ] = None,
    confidence: ConfidenceOption = 0.95,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Convert a release to SDMX, a data package or another format. No data is read."""
    set_up_output(quiet=quiet, as_json=as_json)
    others = entry_points(group=_GROUP)
    formats = (*FORMATS, *(name for name in sorted(others.names) if name not in FORMATS))
    if export_format not in formats:
        known = f"{', '.join(formats[:-1])} or {formats[-1]}"
        raise InputError(f"Unknown --format {export_format!r}. Use {known}.")
    is_sdmx = export_format == "sdmx-csv"
    of_sdmx = (agency, structure_version, dimensions or None, codes or None, dataflows or None)
    if not is_sdmx and any(given is not None for given in of_sdmx):
        raise InputError(
            "--agency, --structure-version, --dimension, --codes and --dataflow need --format "
            "sdmx-csv."
        )
    if is_sdmx and agency is None:
        raise InputError("--format sdmx-csv needs --agency, the identifier of an SDMX agency.")
    check_confidence(confidence)
    release = Release.load(folder)
    if agency is None:
        is_ours = export_format in FORMATS
        write = write_data_package if is_ours else others[export_format].load()
        write(release, output, confidence=confidence)
    else:
        version = structure_version or "1.0.0"
        write_sdmx(
            release,
            output,
            agency=agency,
            version=version,
            confidence=confidence,
            dimensions=_split_pairs(dimensions, "--dimension"),
            codes={
                name: _read_codes(Path(path))
                for name, path in _split_pairs(codes, "--codes").items()
            },
            dataflows=_split_pairs(dataflows, "--dataflow"),
        )
    tables = len(release.plan.workload.groups)
    print_facts(("export", f"{output} ({tables} tables)"))
    if as_json:
        print_json({"folder": str(output), "format": export_format, "tables": tables})


def _split_pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """Split texts such as MONTH=TIME_PERIOD at their first equals sign."""
    pairs = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise InputError(f"{option} {text!r} must be written as NAME=VALUE.")
        pairs[name] = value
    return pairs


def _read_codes(path: Path) -> dict[str, str]:
    """Read the SDMX code of each value from a CSV or Parquet file."""
    file = CodeFile(path, "list of codes", InputError)
    values, codes = (file.read_column(name) for name in ("value", "code"))
    return dict(zip(map(str, values), map(str, codes), strict=True))
