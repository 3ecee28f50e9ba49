"""Series: the releases of one plan, drawn one period after another.

Each period is a publication (`fitplug_dask.series.period`). After the last period, the sealed
counts and their key are removed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitplug.counts import AttributeSet, Source, Tables, read_source
from fitplug.domain import ValueLookup
from fitplug.errors import FitplugError, InputError
from fitplug.ledger import ReleaseCharges, StagedCharge
from fitplug.plan import Plan
from fitplug.releases import (
    PartialRelease,
    PeriodAnswers,
    Release,
    check_period_tables,
    join_periods,
    verify_period_display,
)
from fitplug_dask.counting import count
from fitplug_dask.series.counts import list_period_tables
from fitplug_dask.series.folders import PeriodFolders, SeriesRecord
from fitplug_dask.series.period import (
    PeriodExecutor,
    PeriodPublication,
    SeriesCharge,
    name_draw,
)
from fitplug_opendp.count_checks import check_are_tables
from fitplug_opendp.key_file import KeyFile
from fitplug_opendp.noise_source import NoiseSource
from fitplug_opendp.staging import RETRY, encode_path, report_write_errors


@dataclass(frozen=True, eq=False)
class Series:
    """The releases of one plan, period by period. `begin_series` and `open_series` make it.

    All releases are in the folder, from which `read` reads them. The series itself holds no data.

    Attributes:
        folder: The absolute path of the series' folder.
        plan: The plan, whose answers can be drawn period by period.
        record: The record of the series.
        noise_source: The noise of the whole series, and its privacy cost.
        charge: The charge; None for a series that can only be read.
        key: The location of the encrypted counts' key; None for a series that can only be read.
    """

    folder: Path
    plan: Plan
    record: SeriesRecord
    noise_source: NoiseSource
    charge: SeriesCharge | None = None
    key: KeyFile | None = None

    def __repr__(self) -> str:
        return f"Series({str(self.folder)!r}, plan={self.plan.digest[:12]})"

    def __dir__(self) -> list[str]:
        """List the members of `fitplug.Series`: the others are for this package."""
        return [
            *("close", "folder", "key_file", "labels", "plan", "read", "release", "rho", "tables"),
            *("to_release", "verify"),
        ]

    @property
    def rho(self) -> float:
        """The cost of the whole series in rho of zCDP, for one person in the plan's unit."""
        return self.noise_source.rho

    @property
    def key_file(self) -> Path | None:
        """The key file of the encrypted counts; None for a series that can only be read."""
        return None if self.key is None else self.key.path

    @property
    def labels(self) -> tuple[str, ...]:
        """The periods, in their order."""
        return self.plan.domain[self.record.periods].labels

    @property
    def tables(self) -> tuple[AttributeSet, ...]:
        """The attribute sets to count for each period, as `(plan.domain, series.tables)`."""
        return list_period_tables(self.plan, self.record.periods)

    def read(self) -> PartialRelease:
        """Read the release so far.

        If a process was killed after it drew a period, the period is published now. If the ledger
        is an older copy that lacks a period in the folder, the period is recorded again.

        Returns:
            The estimates of all queries that count no later period, with their variances.

        Raises:
            InputError: A file is damaged or was edited.
            FitplugError: The ledger records a drawn period whose answers are missing here, or lacks
                a period in the folder that may have been edited.
        """
        return self._join(self._read_answers())

    def release(
        self, period: Any, data: Source | Tables | Callable[[], Tables] | Any = None
    ) -> PartialRelease:
        """Draw the noise of a period, once, and write its folder.

        If the period is already drawn, this returns what was released and does not read the data.
        If an earlier call was interrupted, this call continues it with the counts that were stored
        then.

        Args:
            period: The period: a value of the attribute, or its text.
            data: Exact counts that include at least `tables`, a function that returns them when
                they are needed, or a `fitplug.Source` or its path. Only the cells of this period
                are used. The counts must be final: later changes to the data are in no release. A
                source with `person` should contain only the rows of this period, because the limit
                on rows per person chooses among all rows of the source. Each period is counted
                separately; "Series" in the documentation explains what this enforces.

        Returns:
            The release so far, including this period.

        Raises:
            InputError: There is no such period, an earlier period is not drawn yet, the series is
                closed, the counts are needed and not given, or a file is damaged.
            TablesError: The tables do not match the plan.
            LedgerError: The ledger cannot be read or written.
            SamplerError: OpenDP's sampler fails its test.
            FitplugError: A file cannot be written. Repeating the call then finishes the period.
        """
        index = self._find_period(period)
        drawn = self._read_answers()
        if index > len(drawn):
            raise InputError(
                f"the next period is {self.labels[len(drawn)]!r} of {self.record.periods}. "
                "Draw the periods in order, including periods without rows."
            )
        if index == len(drawn):
            try:
                charge = self._check_open()
                with report_write_errors(self.folder, RETRY):
                    publication = self._prepare(charge, drawn).check()
                publication.publish(lambda: publication.seal_counts(lambda: self._count(data)))
            except FitplugError:
                if len(self._read_answers()) <= index:  # another process may have drawn it
                    self._check_open()
                    raise
        released = self.read()
        is_closed = self.charge is not None and self.charge.read().stage.state == "published"
        if released.is_complete or is_closed:  # another process may have closed it
            self._end()
        return released

    def close(self) -> None:
        """End the series before its last period, and remove all confidential data.

        No later period can be drawn. The released periods stay. Nothing is refunded.

        Raises:
            LedgerError: The ledger cannot be read or written.
        """
        self.read()
        self._end()

    def to_release(self) -> Release:
        """Return the release of all periods, as if they had been drawn at once.

        Raises:
            InputError: A period is not drawn yet.
        """
        partial = self.read()
        if not partial.is_complete:
            raise InputError(
                f"only {partial.drawn} of {partial.period_count} periods are drawn. Draw the "
                "remaining periods."
            )
        fields = ("plan", "answers", "rho", "entry", "limited", "rows", "outside")
        return Release(**{name: getattr(partial, name) for name in fields})

    def verify(self) -> None:
        """Check that the tables in the folders of all periods agree with the answers.

        Raises:
            InputError: A file is missing, damaged or was edited; the message names it.
        """
        drawn: list[PeriodAnswers] = []
        for index in range(self.read().drawn):
            published = self._folders.read(index)
            assert published is not None
            drawn.append(published[0])
            release, folder = self._join(drawn), self._folders.locate(index)
            check_period_tables(release, folder, published[1])
            if self.record.display:
                verify_period_display(release, folder, self.record.confidence, published[1])

    def _find_period(self, period: Any) -> int:
        """Find the index of a period."""
        periods = self.record.periods
        lookup = ValueLookup(self.plan.domain[periods])
        cells = [first for first, last in lookup.find(period) if first == last]
        if len(cells) != 1:
            raise InputError(lookup.describe_unknown(period, periods))
        return cells[0]

    @property
    def _folders(self) -> PeriodFolders:
        return PeriodFolders(self.folder, self.plan, self.record)

    def _check_open(self) -> SeriesCharge:
        """Return the charge, or raise InputError if no period can be drawn."""
        charge = self._get_charge()
        if charge.read().stage.state == "published":
            raise InputError(f"the series in {self.folder} is closed. Create another series.")
        return charge

    def _get_charge(self) -> SeriesCharge:
        """Return the charge; raise InputError if the series was opened without its ledger."""
        if self.charge is None:
            raise InputError("the series was opened for reading only. Open it with its ledger.")
        return self.charge

    def _read_answers(self) -> list[PeriodAnswers]:
        """Read the answers of all drawn periods, and publish those that are only staged."""
        drawn: list[PeriodAnswers] = []
        if self.charge is None:
            while len(drawn) < len(self.labels):
                published = self._folders.read(len(drawn))
                if published is None:
                    break
                drawn.append(published[0])
            return drawn
        draws = self.charge.read_draws()
        while len(drawn) < len(self.labels):
            draw = draws.get(name_draw(self.record, len(drawn)))
            period = self._prepare(self.charge, drawn, draw).find_charge()
            if period.state in ("new", "charged"):
                break
            with report_write_errors(self.folder, RETRY):
                drawn.append(period.find_staged().publish())
        return drawn

    def _prepare(
        self,
        charge: SeriesCharge,
        earlier: Sequence[PeriodAnswers],
        draw: StagedCharge | None = None,
    ) -> PeriodPublication:
        """Prepare the publication of the period that follows the `earlier` ones."""
        assert self.key is not None
        period = self._folders.get_period(len(earlier))
        return PeriodPublication(
            ledger=charge.ledger,
            noise_source=self.noise_source,
            executor=PeriodExecutor(period),
            period=period,
            charge=draw,
            series_charge=charge,
            folders=self._folders,
            earlier=tuple(earlier),
            key=self.key,
        )

    def _join(self, drawn: Sequence[PeriodAnswers]) -> PartialRelease:
        """Join the answers of the periods drawn so far."""
        entry = None if self.charge is None else self.charge.read().entry
        return join_periods(self.plan, self.record.periods, drawn, rho=self.rho, entry=entry)

    def _count(self, data: Source | Tables | Callable[[], Tables] | Any) -> Tables:
        """Count rows, and no more of each person than the unit of privacy allows."""
        if data is None:
            raise InputError("this period needs exact counts. Give tables, or a source of rows.")
        if isinstance(data, Tables):
            return data
        if inspect.isfunction(data) or inspect.ismethod(data):
            counted = data()
            check_are_tables(counted)
            return counted
        source, wanted = read_source(data), (self.plan.domain, self.tables)
        if source.person is None:
            return count(source, wanted)
        return count(source, wanted, unit=self.plan.unit)

    def _end(self) -> None:
        """Enter in the ledger that the series is over, and remove all confidential data."""
        charge = self._get_charge()
        stage = charge.read().stage
        if stage.state != "published":
            ReleaseCharges(charge.ledger).record_publication(stage, encode_path(self.folder))
        self._folders.remove_hidden()
        if self.key is not None:
            self.key.remove()
