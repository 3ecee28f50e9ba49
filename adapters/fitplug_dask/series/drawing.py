"""Drawing: the steps by which one period is drawn, once, whatever happens in between.

A call that was stopped is continued by the same call.

1. Everything that an earlier draw may have left is looked at. Staged answers count as drawn.
2. Its exact counts are sealed. Later tries, and the answers of later periods, use these counts.
3. The ledger enters that the period is to be drawn, within the charge of the series.
4. The noise is drawn, and the noisy answers are staged.
5. The ledger enters these answers as drawn. If it has others, these are discarded, unseen.

The folder of the period is published after that. A ledger that is an older copy of itself may lack
what is in the folder. It enters these answers again if their seal is that of the sealed counts: the
whole series is charged already.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fitplug.counts import Tables
from fitplug.errors import FitplugError, InputError
from fitplug.families import may_be_clamped
from fitplug.ledger import DrawRequest, Ledger, ReleaseCharges, Stage, StagedCharge
from fitplug.numeric import IntArray
from fitplug.plan import Plan
from fitplug.release import PeriodAnswers
from fitplug_dask.series.counts import PeriodCounts, SealedCounts, answer_newest, take_period
from fitplug_dask.series.folders import PeriodFolders, SeriesRecord
from fitplug_opendp.noise_source import CLAMPED, check_sampler_for, draw_part
from fitplug_opendp.release_progress import log_duration
from fitplug_opendp.staging import encode_path


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
        """Read the charge of the series, and how far it has come."""
        entries, stages = self.ledger.entries(), self.ledger.stages()
        return StagedCharge(entries[self.entry - 1], stages[self.entry])

    def read_draws(self) -> Mapping[str | None, StagedCharge]:
        """Read the draws of periods that the ledger has, by their keys."""
        entries, stages = self.ledger.entries(), self.ledger.stages()
        draws = [entry for entry in entries if entry.within == self.entry and entry.id in stages]
        return {entry.key: StagedCharge(entry, stages[entry.id]) for entry in draws}


def name_draw(record: SeriesRecord, index: int) -> str:
    """Name the draw of a period in the ledger."""
    return f"{record.key}: period {index + 1} of number {record.entry}"


@dataclass(frozen=True, eq=False)
class Drawing:
    """The draw of one period of a series.

    Attributes:
        plan: The plan.
        record: What the series is.
        charge: Its charge.
        folders: Its folders.
        sealed: Its sealed counts.
        index: The index of the period, whose predecessors are all drawn.
        rho: The cost of the whole series.
    """

    plan: Plan
    record: SeriesRecord
    charge: SeriesCharge
    folders: PeriodFolders
    sealed: SealedCounts
    index: int
    rho: float

    def check_sampler(self) -> None:
        """Raise SamplerError if the sampler does not draw what privacy is proven for."""
        with log_duration("check"):
            check_sampler_for(self._run, self.plan.noise_std)

    def draw(self, find_tables: Callable[[], Tables]) -> None:
        """Draw the period, unless that was done, and enter its answers as drawn.

        Args:
            find_tables: Returns exact counts. It is called unless an earlier try has sealed some.

        Raises:
            InputError: Sealed counts or staged answers are damaged, or not those of one try.
            FitplugError: A later period was drawn already, or the ledger or a file cannot be read
                or written.
            OSError: A file cannot be written.
        """
        digest = self._find_staged()
        later = None if digest else self.folders.find_later(self.index)
        if later is not None:
            raise FitplugError(
                f"{later} is of a later period than {self.index + 1}, which was drawn before it; "
                "put back its folder, or the newest copy of the ledger"
            )
        earlier = self._read_earlier()
        newest = self._seal_counts(find_tables)
        counts = [one.counts for one in (*earlier, newest)]
        exact = answer_newest(self.plan, self.record.periods, counts)
        begun = self._begin()
        if begun.stage.state != "charged":
            return
        seal = self.sealed.seal(self.index, newest)
        digest = digest or self._stage(exact, newest, seal)
        if self._enter(begun, digest, seal).answers != digest:
            # Another process was first, and nobody has seen this draw.
            self.folders.discard(self.index, digest)

    def adopt(self, published: PeriodAnswers, digest: str) -> StagedCharge:
        """Enter published answers as drawn, as the ledger is a copy from before they were.

        Args:
            published: The answers.
            digest: Their digest.

        Raises:
            InputError: They are not of the sealed counts, or these are missing or damaged.
            FitplugError: The ledger cannot be read or written.
        """
        self._check_seal(published)
        begun = self._begin()
        return StagedCharge(begun.entry, self._enter(begun, digest, published.seal))

    def _begin(self) -> StagedCharge:
        """Enter that the period is to be drawn, or find how far the draw has come."""
        label = self.plan.domain[self.record.periods].labels[self.index]
        label = label.encode(errors="replace").decode()  # a ledger holds no broken Unicode
        request = DrawRequest(
            charge=self.charge.read().entry,
            key=name_draw(self.record, self.index),
            what=f"period {label} of {self.record.key}",
            output=encode_path(self.folders.folder),
        )
        return ReleaseCharges(self.charge.ledger).begin(request)

    def _enter(self, begun: StagedCharge, digest: str, seal: str) -> Stage:
        """Enter answers as drawn, and return the stage that the draw is at."""
        output = encode_path(self.folders.folder)
        return ReleaseCharges(self.charge.ledger).record_draw(
            begun.entry, digest, counts=seal, output=output
        )

    @property
    def _run(self) -> str:
        return f"{self.record.digest} {self.index}"

    def _seal_counts(self, find_tables: Callable[[], Tables]) -> PeriodCounts:
        """Seal the counts of the period, unless an earlier try has done so, and return them."""
        if self.sealed.has(self.index):
            return self.sealed.read(self.index)
        periods, contributions = self.record.periods, self.record.contributions
        with log_duration("count"):
            tables = find_tables()
        counts = take_period(self.plan, periods, self.index, tables, contributions)
        return self.sealed.keep(self.index, counts)

    def _read_earlier(self) -> Sequence[PeriodCounts]:
        """Read the sealed counts of the periods that are drawn.

        Raises:
            InputError: They are not those that their answers were drawn from.
        """
        earlier = [self.sealed.read(index) for index in range(self.index)]
        for index, counts in enumerate(earlier):
            published = self.folders.read(index)
            if published is None or published[0].seal != self.sealed.seal(index, counts):
                raise _make_other_counts_error(index)
        return earlier

    def _find_staged(self) -> str | None:
        """Find answers that an earlier try has staged, and return their digest."""
        staged = self.folders.find_staged(self.index, None)
        if staged is None:
            return None
        self._check_seal(staged[1])
        return staged[2]

    def _check_seal(self, drawn: PeriodAnswers) -> None:
        """Raise InputError unless answers were drawn from the sealed counts, which are there."""
        index = drawn.period.index
        if drawn.seal != self.sealed.seal(index, self.sealed.read(index)):
            raise _make_other_counts_error(index)

    def _stage(self, exact: IntArray, counts: PeriodCounts, seal: str) -> str:
        """Draw the noise and stage the noisy answers; return their digest."""
        std = self.plan.noise_std
        with log_duration("draw"):
            noisy = draw_part(exact, std, self._run) if exact.size else exact
        if may_be_clamped(noisy, std):
            warnings.warn(CLAMPED, RuntimeWarning, stacklevel=5)
        with log_duration("store"):
            return self.folders.stage(
                PeriodAnswers(
                    period=self.folders.get_period(self.index),
                    answers=noisy,
                    seal=seal,
                    limited=counts.limited,
                    rows=counts.rows,
                    outside=counts.outside,
                ),
                rho=self.rho,
                contributions=self.record.contributions,
                entry=self.charge.read().entry,
            )


def _make_other_counts_error(index: int) -> InputError:
    return InputError(
        f"the sealed counts of period {index + 1} are not those that its answers were drawn from; "
        "put the files back"
    )
