"""Slab counts: how the exact counts of one slab reach the task that splits them.

They travel with the task, or the task reads them where another one has stored them. Each way is a
type of its own: no value of the counts decides which of them it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from fitplug.numeric import IntArray
from fitplug_dask.kernel import Fault
from fitplug_dask.releases.failures import report_faults
from fitplug_dask.releases.jobs import ReleaseJob


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
