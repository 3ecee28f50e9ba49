"""Exact counts of a release, and how those of one slab reach the task that splits them.

They are tables of this process, whose counts travel with the task, or slabs that the workers have
stored, and that the task reads. Each way is a type of its own: no value of the counts decides which
of them it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from fitplug.counts import Tables
from fitplug.families import PartedStrategy
from fitplug.numeric import IntArray
from fitplug.plan import Plan
from fitplug_dask.kernel import Fault
from fitplug_dask.releases.failures import report_faults
from fitplug_dask.releases.jobs import ReleaseJob
from fitplug_dask.releases.stored_counts import CountStore
from fitplug_opendp.count_checks import (
    CountedRows,
    check_limit,
    check_tables,
    find_seal,
    list_outside_attributes,
)


@dataclass(frozen=True, repr=False, eq=False)
class SlabCounts(ABC):
    """The exact counts of a slab. They are confidential.

    Attributes:
        number: The number of the slab.
    """

    number: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.number})"

    @abstractmethod
    def read(self, job: ReleaseJob) -> IntArray | Fault:
        """Return the counts, with an axis for each attribute of the slab's table."""


@dataclass(frozen=True, repr=False, eq=False)
class SentSlab(SlabCounts):
    """Counts that travel with the task.

    Attributes:
        counts: The counts, with an axis for each attribute of the slab's table.
    """

    counts: IntArray

    def read(self, job: ReleaseJob) -> IntArray | Fault:
        return self.counts


@dataclass(frozen=True, repr=False, eq=False)
class StoredSlab(SlabCounts):
    """Counts that the task which counted them has stored.

    Attributes:
        seal: Their seal.
    """

    seal: str

    def read(self, job: ReleaseJob) -> IntArray | Fault:
        store = job.counts
        assert store is not None
        shape = job.parted.slabs[self.number].shape_in(job.plan.domain)
        return report_faults(lambda: store.read_slab(self.number, self.seal, shape), store.place)


class ExactCounts(ABC):
    """The exact counts that a release is made from. They are confidential.

    Attributes:
        seal: Their seal under the nonce that is kept until the release is published, so that the
            same counts have the same seal in each run.
        rows: The rows that they were counted from.
        store: Where workers find counts that they are not sent; None for tables.
    """

    seal: str
    rows: CountedRows
    store: CountStore | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    @abstractmethod
    def published_seal(self) -> str | None:
        """The seal that the release has; None if another count would have the same cells."""

    @abstractmethod
    def check(self, plan: Plan, contributions: int) -> None:
        """Raise TablesError unless a plan can be released from these counts.

        Args:
            plan: The plan.
            contributions: The number of records of one person that the release charges for.
        """

    @abstractmethod
    def list_outside_attributes(self, plan: Plan) -> tuple[str, ...]:
        """List the attributes without use in the plan by which the count left records out."""

    @abstractmethod
    def list_slabs(self, parted: PartedStrategy, numbers: Sequence[int]) -> Sequence[SlabCounts]:
        """List the counts of slabs, for `split_counts`."""


class TableCounts(ExactCounts):
    """Counts in tables of this process."""

    def __init__(self, tables: Tables, nonce: bytes) -> None:
        """Seal the tables.

        Args:
            tables: The tables.
            nonce: The nonce of the seal.
        """
        self._tables = tables
        self.rows = CountedRows.from_tables(tables)
        self.seal = Tables(
            tables.domain,
            dict(tables),
            contributions=tables.contributions,
            distinct=tables.distinct,
            once_per=tables.once_per,
            person=tables.person,
            rows=tables.rows,
            copy=False,
            nonce=nonce,
        ).seal

    @property
    def published_seal(self) -> str | None:
        return find_seal(self._tables)

    def check(self, plan: Plan, contributions: int) -> None:
        check_limit(plan, self._tables, contributions)
        check_tables(plan, self._tables)

    def list_outside_attributes(self, plan: Plan) -> tuple[str, ...]:
        return list_outside_attributes(plan, self._tables)

    def list_slabs(self, parted: PartedStrategy, numbers: Sequence[int]) -> Sequence[SlabCounts]:
        slabs = {number: parted.slabs[number] for number in numbers}
        marginals = {slab.names: self._tables.marginal(slab.names) for slab in slabs.values()}
        return [
            SentSlab(number, marginals[slab.names][slab.index]) for number, slab in slabs.items()
        ]


class StoredCounts(ExactCounts):
    """Counts of the plan's own slabs, which are stored encrypted."""

    def __init__(
        self, store: CountStore, rows: CountedRows, seal: str, seals: Sequence[str]
    ) -> None:
        """Name what is stored.

        Args:
            store: Where the counts are.
            rows: The rows that they were counted from.
            seal: The seal of all slabs.
            seals: The seal of each slab.
        """
        self.store, self.rows, self.seal, self._seals = store, rows, seal, tuple(seals)

    @property
    def published_seal(self) -> str | None:
        is_of_all_rows = self.rows.rows is None and self.rows.limited == "declared"
        return None if is_of_all_rows else self.seal

    def check(self, plan: Plan, contributions: int) -> None:
        """Do nothing: these slabs are of the plan, and enforce what the request charges for."""

    def list_outside_attributes(self, plan: Plan) -> tuple[str, ...]:
        return ()

    def list_slabs(self, parted: PartedStrategy, numbers: Sequence[int]) -> Sequence[SlabCounts]:
        return [StoredSlab(number, self._seals[number]) for number in numbers]
