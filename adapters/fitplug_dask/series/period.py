"""Periods: publishing one period as a release of its own, drawn once within the series' charge.

A period takes the steps of `fitplug_opendp.publication`. Before the first step, its exact counts
are sealed: later tries, and the answers of later periods, use these counts. The draw is a ledger
entry at no cost, covered by the charge of the series.

If the ledger is an older copy, it may lack answers that are in the folder or staged. They are
entered again if their seal matches the sealed counts, because the whole series is already charged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fitplug.counts import Tables
from fitplug.errors import FitplugError, InputError
from fitplug.families import may_be_clamped
from fitplug.ledger import DrawRequest, Entry, Ledger, ReleaseCharges, StagedCharge
from fitplug.releases import (
    AnswersPart,
    Period,
    PeriodAnswers,
    join_periods,
    read_period_answers,
    write_answers_part,
)
from fitplug_dask.series.counts import CountsSoFar, PeriodCounts, SealedCounts, take_period
from fitplug_dask.series.folders import LABEL, PeriodFolders, SeriesRecord
from fitplug_opendp.key_file import KeyFile, derive_key
from fitplug_opendp.noise_source import CLAMPED, NoiseSource, check_sampler_for, draw_part
from fitplug_opendp.publication import Publication
from fitplug_opendp.release_request import log_duration
from fitplug_opendp.staging import StagedAnswers, Staging


@dataclass(frozen=True)
class SeriesCharge:
    """The charge of a series.

    Attributes:
        ledger: The ledger.
        entry: The number of the charge.
    """

    ledger: Ledger
    entry: int

    def read(self) -> StagedCharge:
        """Read the charge of the series and its stage."""
        entries, stages = self.ledger.entries(), self.ledger.stages()
        return StagedCharge(entries[self.entry - 1], stages[self.entry])

    def read_draws(self) -> Mapping[str | None, StagedCharge]:
        """Read the ledger's draws of periods, by their keys."""
        entries, stages = self.ledger.entries(), self.ledger.stages()
        draws = [
            entry for entry in entries if entry.covered_by == self.entry and entry.id in stages
        ]
        return {entry.key: StagedCharge(entry, stages[entry.id]) for entry in draws}


def name_draw(record: SeriesRecord, index: int) -> str:
    """Name the draw of a period in the ledger."""
    return f"{record.key}: period {index + 1} of number {record.entry}"


@dataclass(frozen=True)
class PeriodExecutor:
    """Draws the answers of a period, one part of the plan's answers, in this process.

    Attributes:
        period: The period.
    """

    period: Period
    is_resumed = False
    cut = "one part"

    def draw(
        self, noise_source: NoiseSource, staging: Staging, counts: CountsSoFar, run: str
    ) -> Sequence[AnswersPart]:
        exact, std = counts.answer(), noise_source.plan.noise_std
        noisy = draw_part(exact, std, run) if exact.size else exact
        if may_be_clamped(noisy, std):
            warnings.warn(CLAMPED, RuntimeWarning, stacklevel=7)
        written = write_answers_part(staging.place, 0, noisy)
        place = self.period.place_answers(noise_source.plan)
        return [AnswersPart(0, place, written.bytes, written.digest)]


@dataclass(frozen=True, kw_only=True)
class PeriodPublication(Publication[CountsSoFar, PeriodAnswers]):
    """The publication of one period of a series; all earlier periods are published.

    Attributes:
        series_charge: The charge of the series.
        folders: The folders of the series.
        earlier: The answers of the earlier periods.
        key: Where the key of the sealed counts is.
    """

    series_charge: SeriesCharge
    folders: PeriodFolders
    earlier: Sequence[PeriodAnswers]
    key: KeyFile

    @property
    def index(self) -> int:
        """The index of the period."""
        return len(self.earlier)

    def __str__(self) -> str:
        return str(self.folders.locate(self.index))

    @cached_property
    def sealed(self) -> SealedCounts:
        """The sealed counts of the series.

        Raises:
            InputError: Their key is missing or damaged.
        """
        secret = self.key.read()
        nonce = derive_key(secret, "the seals of a series")
        return SealedCounts(self.folders.hidden, nonce, self.folders.record.digest)

    def seal_counts(self, find_tables: Callable[[], Tables]) -> CountsSoFar:
        """Seal the counts of the period if they are not sealed yet; return all counts so far.

        Args:
            find_tables: Returns exact counts. It is called only if none are sealed yet.

        Raises:
            InputError: Sealed counts are damaged, or answers were not drawn from them.
            OSError: A file cannot be written.
        """
        self.folders.hidden.path.mkdir(mode=0o700, exist_ok=True)
        earlier = [self._read_sealed(index, drawn) for index, drawn in enumerate(self.earlier)]
        if self.sealed.has(self.index):
            newest = self.sealed.read(self.index)
        else:
            record = self.folders.record
            newest = self.sealed.keep(
                self.index,
                take_period(self.plan, record.periods, self.index, find_tables()),
            )
        seal = self.sealed.seal(self.index, newest)
        return CountsSoFar(self.plan, self.folders.record.periods, (*earlier, newest), seal)

    def find_charge(self) -> PeriodPublication:
        # Another process enters its draw in the ledger before it fills the folder.
        published = self.folders.read(self.index)
        draw = self.charge
        if draw is None or draw.stage.state != "published":
            key = name_draw(self.folders.record, self.index)
            draw = self.series_charge.read_draws().get(key)
        if published is None:
            if draw is not None and draw.stage.state == "published":
                # The folder was lost. Make it again from the staged answers.
                draw = StagedCharge(draw.entry, replace(draw.stage, state="drawn"))
            return replace(self, charge=draw, staged=None)
        answers, digest = published
        if draw is None or draw.stage.state == "charged":
            draw = self._adopt(answers, digest)
        if draw.stage.answers != digest:
            raise FitplugError(
                f"{self} holds answers other than those recorded in the ledger. Restore the "
                "original folder of this period."
            )
        if draw.stage.state == "drawn":
            draw = self._record_publication(draw)
        return replace(self, charge=draw, staged=None)

    def find_staged(self) -> PeriodPublication:
        if self.state == "published":
            return self
        stage = None if self.charge is None else self.charge.stage
        staged = self.folders.output(self.index).find_staged(
            self.plan,
            LABEL,
            None if stage is None else stage.answers,
            self.folders.is_of_series,
            self.period,
        )
        if staged is None and stage is not None and stage.state == "drawn":
            current = self.find_charge()  # another process may just have published them
            if current.state == "published":
                return current
            label = self.plan.domain[self.folders.record.periods].labels[self.index]
            raise FitplugError(
                f"period {label!r} was drawn into {stage.folder}. Continue the series in this "
                "folder."
            )
        if staged is None or (stage is not None and stage.state == "drawn"):
            return replace(self, staged=staged)
        self._read_sealed(self.index, self._read_staged(staged))
        # The charge of the series paid for these answers, but an older ledger may lack the draw.
        draw = self._begin_draw() if self.charge is None else self.charge
        return replace(self, charge=draw, staged=staged)

    def _adopt(self, answers: PeriodAnswers, digest: str) -> StagedCharge:
        """Enter published answers as drawn into a ledger that is a copy from before the draw.

        Raises:
            FitplugError: The answers may have been edited: they do not match the sealed counts, or
                these are missing or damaged.
        """
        try:
            self._read_sealed(self.index, answers)
        except InputError:
            raise FitplugError(
                f"{self} was released, but the ledger {self.series_charge.ledger.path} has no "
                "entry for this period. Restore the newest copy of the ledger."
            ) from None
        draw = self._begin_draw()
        charges = ReleaseCharges(self.series_charge.ledger)
        stage = charges.record_draw(
            draw.entry, digest, counts=answers.seal, folder=self.folders.text
        )
        return StagedCharge(draw.entry, stage)

    def _check_can_continue(self) -> None:
        if self.needs_counts:
            check_sampler_for(self.run, self.plan.noise_std)
            later = self.folders.find_later(self.index)
            if later is not None:
                raise FitplugError(
                    f"{later} exists, but the folder of the earlier period {self.index + 1} is "
                    "missing. Restore this folder."
                )

    def _check_counts(self, counts: CountsSoFar) -> None:
        """Do nothing: the counts were checked when they were sealed."""

    def _begin(self, charges: ReleaseCharges, counts: CountsSoFar) -> StagedCharge:
        return self._begin_draw()

    def _begin_draw(self) -> StagedCharge:
        """Enter the draw of the period in the ledger, or find it there."""
        record = self.folders.record
        label = self.plan.domain[record.periods].labels[self.index]
        label = label.encode(errors="replace").decode()  # ledgers contain only valid Unicode
        request = DrawRequest(
            charge=self.series_charge.read().entry,
            key=name_draw(record, self.index),
            what=f"period {label} of {record.key}",
            folder=self.folders.text,
        )
        return ReleaseCharges(self.series_charge.ledger).begin(request)

    def _stage(self) -> Staging:
        output = self.folders.output(self.index)
        return output.stage(LABEL, self.executor.cut, self.run[:8])

    def _get_entry(self) -> Entry | None:
        return self.series_charge.read().entry

    def _locate(self, staged: StagedAnswers) -> str | None:
        return self.folders.text

    def _write(self, staged: StagedAnswers) -> PeriodAnswers:
        answers = self._read_staged(staged)
        record = self.folders.record
        drawn, entry = [*self.earlier, answers], self._get_entry()
        rho = self.noise_source.rho
        release = join_periods(self.plan, record.periods, drawn, rho=rho, entry=entry)
        with log_duration("publish"):
            self.folders.publish(release, staged.staging, staged.digest)
            assert self.charge is not None
            self._record_publication(self.charge)
        return answers

    def _record_publication(self, draw: StagedCharge) -> StagedCharge:
        """Enter that the folder is in place, and remove the staged files of other runs."""
        charges = ReleaseCharges(self.series_charge.ledger)
        stage = charges.record_publication(draw.stage, self.folders.text)
        self.folders.remove_staged(self.index, str(stage.answers))
        return StagedCharge(draw.entry, stage)

    def _read_published(self) -> PeriodAnswers:
        published = self.folders.read(self.index)
        assert self.charge is not None
        if published is None or published[1] != self.charge.stage.answers:
            raise FitplugError(f"{self} was removed or replaced by another process. Run again.")
        return published[0]

    def _read_staged(self, staged: StagedAnswers) -> PeriodAnswers:
        """Read the staged answers of the period."""
        assert self.period is not None
        return read_period_answers(staged.staging.place, self.plan, self.period)[0]

    def _read_sealed(self, index: int, drawn: PeriodAnswers) -> PeriodCounts:
        """Read the sealed counts of a drawn period.

        Raises:
            InputError: They are missing or damaged, or the answers were not drawn from them.
        """
        counts = self.sealed.read(index)
        if drawn.seal != self.sealed.seal(index, counts):
            raise InputError(
                f"the answers of period {index + 1} do not match its encrypted counts. Restore the "
                "original files."
            )
        return counts
