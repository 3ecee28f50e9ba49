"""Folders of a series: its record, and the staged and the published answers of its periods.

In the ledger, the digest of the record stands for the answers of the charge. This reveals a folder
whose record was edited, and a ledger to which the series was not charged.

A period is one part of the answers. Like all answers, it is staged (`fitplug_opendp.staging`): it
stays in a hidden folder that only its owner can read until its draw is entered in the ledger. Then
the folder of the period is written from it and moved into place in one step. So nobody has seen
answers that the ledger does not have. The staged part stays until the series is over.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from fitplug.errors import InputError
from fitplug.files import LocalPlace, make_partial_folder, move_into_place
from fitplug.ledger import hash_values
from fitplug.plan import Plan
from fitplug.releases import (
    ANSWER_PARTS,
    MANIFEST,
    PLAN,
    SERIES_RECORD,
    PartialRelease,
    Period,
    PeriodAnswers,
    Release,
    complete_period_folder,
    name_part,
    read_period_answers,
    write_period_display,
)
from fitplug_dask.series.counts import name_counts
from fitplug_opendp.output import Output
from fitplug_opendp.staging import Staging, encode_path, remove_folder

_KIND, _FORMAT = "series of fitplug", 1


@dataclass(frozen=True)
class SeriesRecord:
    """The settings and the charge of a series, all of which are public.

    Attributes:
        plan_digest: The digest of the plan.
        periods: The attribute whose cells are the periods.
        confidence: The confidence of the intervals of groups whose target does not set one.
        display: Whether each period has display tables next to the unbiased ones.
        key: The name of the series in the ledger.
        entry: The number of its charge.
        time: When it was charged.
    """

    plan_digest: str
    periods: str
    confidence: float
    display: bool
    key: str
    entry: int
    time: str

    @cached_property
    def digest(self) -> str:
        """The SHA-256, in hex, of the record."""
        return hash_values(_KIND, _FORMAT, *asdict(self).values())

    def write(self, folder: Path) -> None:
        """Write the record durably, unless the folder has one.

        Raises:
            OSError: It cannot be written.
        """
        said = {"kind": _KIND, "format": _FORMAT, **asdict(self), "digest": self.digest}
        LocalPlace(folder).create(SERIES_RECORD, json.dumps(said, indent=1).encode() + b"\n")

    def _has_types(self) -> bool:
        """Return whether the fields have the right types; a file may give others."""
        types = [str, str, float, bool, str, int, str]
        return [type(value) for value in asdict(self).values()] == types

    @classmethod
    def read(cls, folder: Path) -> SeriesRecord:
        """Read the record of a folder.

        Raises:
            InputError: There is none, or it is damaged or was edited.
        """
        path = folder / SERIES_RECORD
        if not path.is_file():
            raise InputError(f"{folder} is not the folder of a series. Create the series first.")
        try:
            said = json.loads(path.read_bytes())
            is_known = (said.pop("kind"), said.pop("format")) == (_KIND, _FORMAT)
            digest, record = said.pop("digest"), cls(**said)
            is_known = is_known and digest == record.digest and record._has_types()
        except (ValueError, TypeError, KeyError, AttributeError):
            is_known = False
        if not is_known:
            raise InputError(f"{path} is damaged or was edited. Restore the file.")
        return record


def read_plan(folder: Path, record: SeriesRecord) -> Plan:
    """Read the plan of a series.

    Raises:
        InputError: The plan is missing or damaged, or is not the plan of the series.
    """
    path = folder / PLAN
    if not path.is_file():
        raise InputError(f"{folder}: {PLAN} is missing. Restore the file.")
    plan = Plan.load(path)
    if plan.digest != record.plan_digest:
        raise InputError(f"{path} is not the plan of the series. Restore the original file.")
    return plan


LABEL = "period"
_OWNER_ONLY = 0o600


def locate_hidden(folder: Path, series: str) -> LocalPlace:
    """Return the hidden folder of data that are confidential until the last period is drawn.

    Args:
        folder: The absolute path of the folder of the series.
        series: The digest of the series.
    """
    return LocalPlace(folder.with_name(f".{folder.name}.{series[:16]}.series"), _OWNER_ONLY)


@dataclass(frozen=True)
class PeriodFolders:
    """The folder of a series, and the hidden folder next to it.

    Attributes:
        folder: The absolute path of the folder of the series.
        plan: The plan.
        record: The record of the series.
    """

    folder: Path
    plan: Plan
    record: SeriesRecord

    @property
    def count(self) -> int:
        """The number of periods."""
        return self.plan.domain[self.record.periods].size

    @property
    def text(self) -> str:
        """The folder as ledgers write it."""
        return encode_path(self.folder)

    @property
    def hidden(self) -> LocalPlace:
        """The hidden folder of data that are confidential until the last period is drawn."""
        return locate_hidden(self.folder, self.record.digest)

    def get_period(self, index: int) -> Period:
        """Return the period as its answers identify it."""
        return Period(self.record.digest, self.record.periods, index)

    def locate(self, index: int) -> Path:
        """Return the folder of a period."""
        width = len(str(self.count))
        return self.folder / f"period-{index + 1:0{width}}"

    def find_later(self, index: int) -> Path | None:
        """Find a file or folder of a later period, made only after this one is drawn; or None."""
        later = range(index + 1, self.count)
        made = [self.locate(number) for number in later]
        made += [self.hidden.path / name_counts(number) for number in later]
        staged = (self.output(number).list_complete(LABEL) for number in later)
        made += [Path(str(area.place)) for areas in staged for area in areas]
        return next((path for path in made if path.exists()), None)

    def read(self, index: int) -> tuple[PeriodAnswers, str] | None:
        """Read the published answers of a period, and their digest; None if there are none.

        Raises:
            InputError: They are damaged or were edited, or are missing from their folder.
            OSError: They cannot be read.
        """
        folder = LocalPlace(self.locate(index))
        if not os.path.lexists(folder.path):
            return None
        if not folder.join(ANSWER_PARTS).list_sizes().keys() >= {MANIFEST, name_part(0)}:
            # The folder was moved into place with its answers, so they have been removed.
            raise InputError(f"{folder}: a file in {ANSWER_PARTS} is missing. Restore the folder.")
        return read_period_answers(folder, self.plan, self.get_period(index))

    def publish(self, release: PartialRelease, staged: Staging, digest: str) -> None:
        """Write the folder of the newest period, and move it into place.

        Args:
            release: The release so far, including this period.
            staged: Where its answers are.
            digest: Their digest.

        Raises:
            OSError: The folder cannot be written.
        """
        index, confidence = release.drawn - 1, self.record.confidence
        target = self.locate(index)
        try:
            with make_partial_folder(target) as partial:
                answers = LocalPlace(partial).join(ANSWER_PARTS)
                for name in (name_part(0), MANIFEST):
                    answers.replace(name, staged.place.join(ANSWER_PARTS).read(name))
                complete_period_folder(release, partial, confidence, digest)
                if self.record.display:
                    write_period_display(release, partial, confidence, digest)
                move_into_place(partial, target)
        except OSError:
            published = self.read(index)
            if published is None or published[1] != digest:
                raise
            # Another process published these answers first.

    def remove_staged(self, index: int, digest: str) -> None:
        """Remove the staged files of a published period, except for the published answers.

        These stay until the series is over: they show that the period was drawn, even if its folder
        is lost and the ledger is an older copy.
        """
        with suppress(OSError):
            published = self.output(index).find_staged(
                self.plan, LABEL, digest, self.is_of_series, self.get_period(index)
            )
            name = f".{self._name_answers(index)}."
            for path in list(self.hidden.path.iterdir()):
                is_published = published is not None and str(path) == str(published.staging.place)
                if path.name.startswith((name, f".{name}")) and not is_published:
                    remove_folder(path)
            for path in self.folder.glob(f".{self.locate(index).name}.*"):
                shutil.rmtree(path, ignore_errors=True)

    def remove_hidden(self) -> None:
        """Remove the hidden folder, and files that killed processes left in the series folder."""
        self.hidden.remove_all()
        with suppress(OSError):
            for path in self.folder.glob(".*.partial"):
                if path.is_file():
                    path.unlink(missing_ok=True)

    def output(self, index: int) -> Output:
        """Return the output of a period, whose answers are staged in the hidden folder."""
        hidden = LocalPlace(self.hidden.path / self._name_answers(index), _OWNER_ONLY)
        return Output(LocalPlace(self.locate(index)), hidden)

    def _name_answers(self, index: int) -> str:
        return f"answers-{index + 1:05}"

    def is_of_series(self, release: Release) -> bool:
        """Return whether answers belong to the charge of this series."""
        entry = release.entry
        return entry is not None and (entry.id, entry.time) == (self.record.entry, self.record.time)
