"""Folders of SDMX: an SDMX-CSV 2.0 file for each group, and the structures of all of them.

The columns are those of the field guide of SDMX-CSV 2.0.0
(https://github.com/sdmx-twg/sdmx-csv/blob/v2.0.0/data-message/docs/sdmx-csv-field-guide.md).
"""

from __future__ import annotations

from os import PathLike

from fitplug.files import fill_new_folder
from fitplug.release.data_package import write_rows
from fitplug.release.labelled_answers import check_export_names, iterate_answers
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.sdmx_identifiers import check_agency, check_version
from fitplug.release.sdmx_message import MessageWriter
from fitplug.release.sdmx_structures import Structures
from fitplug.release.tables import choose_intervals, make_metadata

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
