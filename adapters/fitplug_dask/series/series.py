"""Series: the releases of one plan, of which one period after another is drawn.

`fitplug_dask.series.drawing` has the steps. When the ledger has entered the answers of a period as
made, its folder is put in its place, and the ledger enters that it is published. After the last
period the sealed counts and their key are removed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitplug.counts import AttributeSet, Source, Tables
from fitplug.errors import FitplugError, InputError
from fitplug.ledger import ReleaseCharges, Stage, StagedCharge
from fitplug.plan import Plan
from fitplug.release import (
    PartialRelease,
    PeriodAnswers,
    Release,
    check_period_tables,
    join_periods,
)
from fitplug_dask.counting import count
from fitplug_dask.series.counts import SealedCounts, list_period_tables
from fitplug_dask.series.drawing import Drawing, SeriesCharge, name_draw
from fitplug_dask.series.folders import PeriodFolders, SeriesRecord
from fitplug_opendp.count_checks import check_are_tables
from fitplug_opendp.key_file import KeyFile, derive_key
from fitplug_opendp.release_progress import log_duration
from fitplug_opendp.staging import encode_path, report_write_errors

_RETRY = "the period is not finished: run the same again, which charges nothing more"


@dataclass(frozen=True, eq=False)
class Series:
    """The releases of one plan, period by period. `begin_series` and `open_series` make it.

    What is released is in the folder, and `read` reads it. The series itself holds no data.

    Attributes:
        folder: The absolute path of its folder.
        plan: The plan, which is causal along the periods.
        record: What the series is.
        rho: The cost of the whole series in rho of zCDP, for one person in the plan's unit.
        charge: The charge; None for a series that can only be read.
        key: Where the key of the sealed counts is; None for a series that can only be read.
    """

    folder: Path
    plan: Plan
    record: SeriesRecord
    rho: float
    charge: SeriesCharge | None = None
    key: KeyFile | None = None

    def __repr__(self) -> str:
        return f"Series({str(self.folder)!r}, plan={self.plan.digest[:12]})"

    @property
    def key_file(self) -> Path | None:
        """The file of the key of the sealed counts; None for a series that can only be read."""
        return None if self.key is None else self.key.path

    @property
    def labels(self) -> tuple[str, ...]:
        """The periods, in their order."""
        return self.plan.domain[self.record.periods].labels

    @property
    def tables(self) -> tuple[AttributeSet, ...]:
        """Attribute sets to count for each period; `(plan.domain, series.tables)` asks for them."""
        return list_period_tables(self.plan, self.record.periods)

    def read(self) -> PartialRelease:
        """Read what is released so far.

        Periods that were drawn and not published yet, as a process was killed, are published. Those
        that are in the folder, and that the ledger lacks as it is an older copy of itself, are
        entered in it again.

        Returns:
            The estimates of all queries that count no later period, with their variances.

        Raises:
            InputError: A file is damaged or was edited.
            FitplugError: The ledger has a period as drawn whose answers are not here, or the folder
                has one that the ledger lacks and that cannot be told from one that was edited.
        """
        draws = {} if self.charge is None else self.charge.read_draws()
        drawn: list[PeriodAnswers] = []
        for index in range(len(self.labels)):
            draw = draws.get(name_draw(self.record, index))
            if self.charge is not None and (draw is None or draw.stage.state == "charged"):
                draw = self._adopt(self.charge, index)
                if draw is None:
                    break
            answers = self._read_period(index, drawn, draw)
            if answers is None:
                break
            drawn.append(answers)
        return self._join(drawn)

    def release(
        self, period: Any, data: Source | Tables | Callable[[], Tables] | Any = None
    ) -> PartialRelease:
        """Draw a period, once, and write its folder.

        A period that is drawn already is returned as it was released, and the data are not looked
        at. If an earlier call was stopped, this one continues it, with the counts that were sealed
        then.

        Args:
            period: The period: a value of the attribute, or its text.
            data: Exact counts that hold at least `tables`, a function that returns them when they
                are needed, or a `fitplug.Source` or its path. Of each only the cells of this period
                are used. The counts must be final: what changes in the data later is in no release.
                A source with `person` should hold the rows of this period alone, as all its rows of
                a person compete. Each period is counted by itself; "Series" in the documentation
                says what this enforces.

        Returns:
            What is released so far, with this period.

        Raises:
            InputError: There is no such period, an earlier one is not drawn yet, the series is
                closed, the counts are needed and not given, or a file is damaged.
            TablesError: The tables are not what the plan needs.
            LedgerError: The ledger cannot be read or written.
            SamplerError: OpenDP's sampler does not draw the noise that privacy is proven for.
            FitplugError: A file cannot be written. The same call then finishes the period.
        """
        index = self._find_period(period)
        current = self.read()
        if index < current.drawn:
            self._remove_if_over(current)
            return current
        if index > current.drawn:
            raise InputError(
                f"period {self.labels[current.drawn]!r} of {self.record.periods} is the next one; "
                "periods are drawn in their order, and one without records is drawn too"
            )
        try:
            charge = self._check_open()
            with report_write_errors(self.folder, _RETRY):
                drawing = self._open_drawing(charge, index)
                drawing.check_sampler()
                drawing.draw(lambda: self._count(data))
        except FitplugError:
            if self.read().drawn <= index:  # another process may have drawn it, meanwhile
                raise
        released = self.read()
        self._remove_if_over(released)
        return released

    def close(self) -> None:
        """End the series before its last period, and remove what is confidential.

        No later period can be drawn, and what is released stays. Nothing is refunded.

        Raises:
            LedgerError: The ledger cannot be read or written.
        """
        self.read()
        self._end()

    def to_release(self) -> Release:
        """Make the release of all periods, as if all had been drawn at once.

        Raises:
            InputError: A period is not drawn yet.
        """
        partial = self.read()
        if not partial.is_complete:
            raise InputError(
                f"{partial.drawn} of {partial.period_count} periods are drawn; the release of all "
                "is made when the last one is"
            )
        fields = ("plan", "answers", "rho", "contributions", "entry", "limited", "rows", "outside")
        return Release(**{name: getattr(partial, name) for name in fields})

    def verify(self) -> None:
        """Check that the tables in the folders of all periods say what the answers do.

        Raises:
            InputError: A file is missing, damaged or was edited; the message names it.
        """
        drawn: list[PeriodAnswers] = []
        for index in range(self.read().drawn):
            published = self._folders.read(index)
            assert published is not None
            drawn.append(published[0])
            check_period_tables(self._join(drawn), self._folders.locate(index), published[1])

    def _find_period(self, period: Any) -> int:
        """Find the index of a period."""
        attribute = self.plan.domain[self.record.periods]
        index = attribute.find_cell(period)
        if index is None or not 0 <= index < attribute.size:
            raise InputError(
                f"{self.record.periods} has no period {period!r}; {attribute.suggest(period)}"
            )
        return index

    @property
    def _folders(self) -> PeriodFolders:
        return PeriodFolders(self.folder, self.plan, self.record)

    def _check_open(self) -> SeriesCharge:
        """Return the charge, or raise InputError if no period can be drawn."""
        if self.charge is None:
            raise InputError("the series was opened to be read; open it with its ledger to draw")
        if self.charge.read().stage.state == "published":
            raise InputError(f"the series in {self.folder} is closed; begin another one")
        return self.charge

    def _adopt(self, charge: SeriesCharge, index: int) -> StagedCharge | None:
        """Enter a period that is in the folder, if the ledger lacks it; None if it is not there."""
        published = self._folders.read(index)
        if published is None:
            return None
        draw = charge.read_draws().get(name_draw(self.record, index))
        if draw is not None and draw.stage.state != "charged":  # by another process, meanwhile
            return draw
        try:
            return self._open_drawing(charge, index).adopt(*published)
        except InputError as error:
            raise FitplugError(
                f"{self._folders.locate(index)} was released, and the ledger {charge.ledger.path} "
                "does not have it, as it is an older copy; put its newest copy back: nothing was "
                f"drawn or entered, and it is not entered from the folder because {error}"
            ) from None

    def _read_period(
        self, index: int, earlier: Sequence[PeriodAnswers], draw: StagedCharge | None
    ) -> PeriodAnswers | None:
        """Read the answers of a period, after they are published if they are not yet.

        Args:
            index: The index of the period.
            earlier: The answers of the periods before it.
            draw: Its draw in the ledger, with its answers; None if the series can only be read.
        """
        published = self._folders.read(index)
        if draw is None:
            return None if published is None else published[0]
        if published is not None and published[1] != draw.stage.answers:
            raise FitplugError(
                f"{self._folders.locate(index)} holds other answers than the ledger has entered; "
                "put back the folder that was released"
            )
        if published is None:
            published = self._publish(index, earlier, draw.stage)
        if draw.stage.state != "published" and self.charge is not None:
            ReleaseCharges(self.charge.ledger).record_publication(
                draw.stage, encode_path(self.folder)
            )
            self._folders.remove_staged(index, published[1])
        return published[0]

    def _publish(
        self, index: int, earlier: Sequence[PeriodAnswers], stage: Stage
    ) -> tuple[PeriodAnswers, str]:
        """Publish the answers of a period that the ledger has as drawn."""
        complete = self._folders.find_staged(index, stage.answers)
        if complete is None:
            published = self._folders.read(index)  # another process may just have published them
            if published is not None and published[1] == stage.answers:
                return published
            raise FitplugError(
                f"period {self.labels[index]!r} was drawn at {stage.time[:19]} into {stage.output}"
                f", and its answers are not in {self.folder}; continue the series in the folder "
                "where it was drawn, as noise is never drawn again"
            )
        staged, answers, digest = complete
        release = self._join([*earlier, answers])
        with log_duration("publish"), report_write_errors(self.folder, _RETRY):
            self._folders.publish(release, staged, digest, self.record.confidence)
        return answers, digest

    def _join(self, drawn: Sequence[PeriodAnswers]) -> PartialRelease:
        """Join the answers of the first periods."""
        return join_periods(
            self.plan,
            self.record.periods,
            drawn,
            rho=self.rho,
            contributions=self.record.contributions,
            entry=None if self.charge is None else self.charge.read().entry,
        )

    def _open_drawing(self, charge: SeriesCharge, index: int) -> Drawing:
        """Open the draw of a period, with the sealed counts."""
        assert self.key is not None
        secret = self.key.read("without it no later period can be drawn")
        folders = self._folders
        folders.open_hidden()
        nonce = derive_key(secret, "the seals of a series")
        sealed = SealedCounts(folders.hidden, nonce, self.record.digest)
        return Drawing(self.plan, self.record, charge, folders, sealed, index, self.rho)

    def _count(self, data: Source | Tables | Callable[[], Tables] | Any) -> Tables:
        """Count rows, and keep no more of each person than the unit of privacy says."""
        if data is None:
            raise InputError("this period needs exact counts; give tables, or a source of rows")
        if isinstance(data, Tables):
            return data
        if inspect.isfunction(data) or inspect.ismethod(data):
            counted = data()
            check_are_tables(counted)
            return counted
        source, wanted = Source.of(data), (self.plan.domain, self.tables)
        if source.person is None:
            return count(source, wanted)
        if self.plan.unit.is_of_records:
            most = self.plan.unit.choose_records(self.record.contributions)
            return count(source, wanted, contributions=most)
        return count(source, wanted, unit=self.plan.unit)

    def _remove_if_over(self, released: PartialRelease) -> None:
        """Remove what is confidential if the last period is drawn."""
        if released.is_complete:
            self._end()

    def _end(self) -> None:
        """Enter that no period will be drawn any more, and remove what is confidential."""
        if self.charge is None:
            raise InputError("the series was opened to be read; open it with its ledger to end it")
        stage = self.charge.read().stage
        if stage.state != "published":
            ReleaseCharges(self.charge.ledger).record_publication(stage, encode_path(self.folder))
        self._folders.remove_hidden()
        if self.key is not None:
            self.key.remove()
