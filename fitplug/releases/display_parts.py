"""Display tables in a release folder, beside the unbiased tables.

    display.json                how they were made, and the digest of each part
    <group>.display.parquet/    part-00000.parquet ...: one display table, as a data set

They are post-processing of the answers in the folder, so `verify_display` computes them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fitplug.domain import list_measures
from fitplug.errors import InputError
from fitplug.files import ArrowTable, Place, encode_parquet, hash_content, import_library
from fitplug.numeric import AnyArray
from fitplug.plan import Plan
from fitplug.releases.answer_parts import read_checked
from fitplug.releases.display import (
    DISPLAY_COLUMNS,
    Display,
    Method,
    check_display_names,
    plan_display,
)
from fitplug.releases.display_tables import make_display
from fitplug.releases.invariants import Totals
from fitplug.releases.manifest import name_files, read_manifest_header
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.releases.table_parts import (
    TablePart,
    check_parts,
    name_table_part,
    parse_parts,
    read_table_part,
)
from fitplug.releases.tables import (
    TableSlice,
    choose_intervals,
    label_part,
    make_arrow,
)

DISPLAY = "display.json"
"""The file name of the manifest."""

_KIND, _FORMAT = "display tables of fitplug", 1

_INTEGER_SLACK = 2
"""How far a display number may be from the recomputed one: another machine adds up in another
order, which may round a tie the other way.
"""


@dataclass(frozen=True)
class DisplayRequest:
    """A request for display tables in a release folder.

    Attributes:
        totals: Known numbers that the tables match, as for `Release.integers`.
    """

    totals: Totals = field(default_factory=dict)


def choose_method(plan: Plan) -> Method:
    """Choose integers, unless the plan has sums of measures, which have none."""
    measures = list_measures(plan.domain, plan.workload.attributes)
    return "nonnegative" if measures else "integers"


def check_request(plan: Plan, request: DisplayRequest) -> None:
    """Check before a release that its display tables can be made.

    Raises:
        WorkloadError: The tables cannot be made, or a total is not well formed or cannot be kept.
    """
    for group in plan.workload.groups:
        check_display_names(group)
    is_public = plan.strategy.structure.public_attributes is not None
    answers = np.zeros(1 if plan.noise.answers > 2**24 else plan.noise.answers, dtype=np.int64)
    empty = NoisyAnswers(plan, answers, plan.rho)
    display = plan_display(empty, choose_method(plan), {} if is_public else request.totals)
    if not display.is_by_steps and request.totals and not is_public:
        make_display(empty, display.method, request.totals)


def write_display(
    folder: Place,
    release: NoisyAnswers,
    request: DisplayRequest,
    answers_digest: str,
    confidence: float,
) -> bytes:
    """Write the display tables of a release into its folder, part by part.

    Args:
        folder: The folder of the release, or its staging area.
        release: The release, whose estimates can be read.
        request: The request for the tables.
        answers_digest: The digest of the answers.
        confidence: The confidence of the intervals, for groups whose target has no confidence.

    Returns:
        The content of the manifest, which is durable.

    Raises:
        WorkloadError: No display tables match the totals.
        OSError: A file cannot be written.
        ImportError: pyarrow is not installed.
    """
    display = plan_display(release, choose_method(release.plan), request.totals)
    files, parts = name_files(release.plan.workload), []
    for chosen, values in display.iterate():
        table = _make_part(display, chosen, values, confidence)
        labels = [name for name in table.column_names if name not in DISPLAY_COLUMNS]
        content = encode_parquet(table, [*labels, DISPLAY_COLUMNS[-1]])
        data_set = folder.join(name_display_folder(files[chosen.group]))
        data_set.replace(name_table_part(chosen.number), content)
        parts.append(TablePart(chosen, len(content), hash_content(content)))
    by_group: dict[str, list[TablePart]] = {name: [] for name in files}
    for part in parts:
        by_group[part.slice.group].append(part)
    header = {
        "kind": _KIND,
        "format": _FORMAT,
        "answers_digest": answers_digest,
        "biased": True,
        "method": display.method,
        "by_steps": display.is_by_steps,
        "consistent": display.is_consistent,
        "totals": {name: np.asarray(value).tolist() for name, value in request.totals.items()},
        "confidence": confidence,
        "groups": [
            {
                "name": name,
                "folder": name_display_folder(files[name]),
                "axis": of_group[0].slice.axis,
                "parts": [[p.slice.start, p.slice.stop, p.bytes, p.digest] for p in of_group],
            }
            for name, of_group in by_group.items()
        ],
    }
    content = json.dumps(header, ensure_ascii=True).encode()
    folder.replace(DISPLAY, content)
    return content


def name_display_folder(file: str) -> str:
    """Return the name of the folder of a display table's data set."""
    return f"{file}.display.parquet"


def _make_part(
    display: Display, chosen: TableSlice, values: AnyArray, confidence: float
) -> ArrowTable:
    """Make the Arrow table of a part."""
    group = display.release.plan.workload[chosen.group]
    intervals = choose_intervals(group, None, default=confidence)
    labels = label_part(display.release, chosen)
    results = display.make_results(chosen, values, intervals)
    return make_arrow(labels | results, display.describe(group, intervals))


@dataclass(frozen=True, eq=False)
class DisplayParts:
    """The display tables of a release folder.

    Attributes:
        folder: The folder of the release.
        header: The content of the manifest.
        parts: The parts of each group's table, in order.
    """

    folder: Place
    header: Mapping[str, Any]
    parts: Mapping[str, Sequence[TablePart]]

    def find_folder(self, name: str) -> Place:
        """Return the folder of a group's data set."""
        (entry,) = [one for one in self.header["groups"] if one["name"] == name]
        return self.folder.join(entry["folder"])

    def iterate(self, name: str) -> Iterator[ArrowTable]:
        """Read the parts of a group's display table one after another; digests are checked."""
        for part in self.parts[name]:
            yield read_table_part(self.find_folder(name), part)

    def read(self, name: str) -> ArrowTable:
        """Read a group's whole display table."""
        return import_library("pyarrow").concat_tables(list(self.iterate(name)))

    @property
    def summary(self) -> str:
        """A short description of the tables."""
        kept = f", totals kept: {len(self.header['totals'])}" if self.header["totals"] else ""
        agree = "" if self.header["consistent"] else ", not all tables agree"
        return f"{self.header['method']}, biased{kept}{agree}"


def read_display(folder: Place, digest: str | None) -> DisplayParts | None:
    """Read the manifest of the display tables of a folder.

    Args:
        folder: The folder.
        digest: The digest of the manifest by release.json; None if there are no display tables.

    Raises:
        InputError: The manifest is missing, damaged or was edited.
    """
    if digest is None:
        return None
    name = f"{folder}/{DISPLAY}"
    header = read_manifest_header(name, read_checked(folder, DISPLAY, digest), _KIND, _FORMAT)
    try:
        parts = {one["name"]: parse_parts(one) for one in header["groups"]}
    except Exception:  # entries that are missing or of another type raise many kinds of errors
        raise InputError(f"{name} is damaged. Get the folder again from its publisher.") from None
    return DisplayParts(folder, header, parts)


def verify_display(release: NoisyAnswers, written: DisplayParts) -> None:
    """Check display tables: their digests, and the numbers against the answers of the release.

    Raises:
        InputError: A part is missing, damaged or was edited, or does not follow from the answers.
        OSError: A part cannot be read.
    """
    display = plan_display(release, choose_method(release.plan), written.header["totals"])
    for group in release.plan.workload.groups:
        check_parts(group, written.parts.get(group.name, ()))
    latest: dict[str, tuple[TablePart, ArrowTable]] = {}
    for chosen, values in display.iterate():
        group, folder = release.plan.workload[chosen.group], written.find_folder(chosen.group)
        # The answers may be cut differently now, so this slice may overlap several parts.
        for part in written.parts[group.name]:
            start = max(part.slice.start, chosen.start)
            stop = min(part.slice.stop, chosen.stop)
            if part.slice.axis != chosen.axis:
                raise InputError(
                    f"{written.folder}/{DISPLAY} does not fit the table {group.name!r}. Get the "
                    "folder again from its publisher."
                )
            if start >= stop:
                continue
            if group.name not in latest or latest[group.name][0] is not part:
                latest[group.name] = part, read_table_part(folder, part)
            both = chosen._replace(start=start, stop=stop)
            rows = np.arange(len(latest[group.name][1])).reshape(part.slice.find_shape(group))
            table = latest[group.name][1].take(_cut(both, part.slice, rows).ravel())
            expected = _make_part(
                display, both, _cut(both, chosen, values), written.header["confidence"]
            )
            if not agree(display, table, expected):
                raise InputError(
                    f"{folder}/{name_table_part(part.slice.number)}: the display table does not "
                    "match the answers. Get the folder again from its publisher."
                )


def _cut(wanted: TableSlice, given: TableSlice, values: AnyArray) -> AnyArray:
    """Cut the values of the slice `given` down to the slice `wanted` within it."""
    start = wanted.start - given.start
    return wanted._replace(start=start, stop=start + wanted.stop - wanted.start).take(values)


def agree(display: Display, table: ArrowTable, expected: ArrowTable) -> bool:
    """Return whether a display table that was read is the expected one, up to rounding."""
    if table.column_names != expected.column_names or len(table) != len(expected):
        return False
    for name in expected.column_names:
        read, column = table[name], expected[name]
        if name in DISPLAY_COLUMNS:
            numbers = column.to_numpy().astype(np.float64)
            slack = 1e-6 * (1 + np.abs(numbers))
            if display.method == "integers":
                slack = slack + _INTEGER_SLACK * (name == "display") + (name in ("lower", "upper"))
            if not (np.abs(read.to_numpy() - numbers) <= slack).all():
                return False
        elif not read.equals(column.cast(getattr(column.type, "value_type", column.type))):
            return False
    return True
