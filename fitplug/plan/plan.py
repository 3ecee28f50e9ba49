"""Plans: the mechanism that will run, what it promises, and the proof of how good it is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from os import PathLike

from fitplug.display import Figure, format_up
from fitplug.mechanism import Mechanism, dense_covariance, list_mechanisms
from fitplug.numeric import FloatArray, IntArray, guard_linear_algebra
from fitplug.plan.notebook import plan_html
from fitplug.plan.plan_file import plan_digest, read_plan, write_plan
from fitplug.plan.plots import plot_plan
from fitplug.plan.summary import (
    GroupRow,
    describe_certificate,
    describe_groups,
    describe_status,
    summarise,
)
from fitplug.proof import PlanRecord, verify


@dataclass(frozen=True, eq=False)
class Plan(PlanRecord):
    """A designed mechanism, made by `fitplug.design`; immutable.

    Its fields are those of `fitplug.proof.PlanRecord`.
    """

    @property
    def status(self) -> str:
        """Whether the tolerance was reached, and what to do if not."""
        return describe_status(self)

    @property
    def certificate(self) -> str:
        """What the lower bound says, in a sentence."""
        return describe_certificate(self)

    def sigma(self) -> tuple[FloatArray, IntArray]:
        """The covariance (k, k) of the noise on B x, and the integer basis B (k, d) over the cells
        of the workload's attributes. Raises WorkloadError if they are too large to hold.
        """
        return dense_covariance(self.strategy, self.noise_std)

    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What runs, apart: name, kind, sensitivity, sigma, dimension; see `mechanisms`."""
        return list_mechanisms(self.strategy, self.noise_std)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of everything the plan says."""
        return plan_digest(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to one file; a NumPy .npz archive with its digest inside."""
        write_plan(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Plan:
        """Read a plan back. Raises PlanError if the file is no plan, is damaged or was edited, says
        anything that is not part of a plan, or claims another privacy cost, or room for another
        number of records, than its integers have; `verify` checks every other claim.
        """
        record = read_plan(path)
        return cls(**{field.name: getattr(record, field.name) for field in fields(record)})

    def verify(self) -> None:
        """Recompute cost, variances and the lower bound from the plan's own content.

        Uses nothing of the solver: the integer matrix, the workload and the dual weights alone.
        Raises PlanError, saying which claim does not hold.
        """
        with guard_linear_algebra():
            verify(self)

    def summary(self, delta: float = 1e-9) -> str:
        """A text table: what it costs, how close to the least, what each group asked and gets."""
        return summarise(self, delta)

    def group_rows(self) -> list[GroupRow]:
        """Per group: what it asked and what it gets."""
        return describe_groups(self)

    def plot(self) -> Figure:
        """A matplotlib Figure: per group, the std that was asked for (at `scale`) and that of the
        answers, and its part of the privacy cost (see `fitplug.plan.prices`); of many groups, the
        costliest. Raises ImportError without matplotlib.
        """
        return plot_plan(self)

    def _repr_html_(self) -> str:
        return plan_html(self, self.digest)

    def __repr__(self) -> str:
        return (
            f"Plan(rho={format_up(self.rho)}, gap={format_up(self.gap, 2)}, "
            f"{self.workload.query_count} queries, digest={self.digest[:12]})"
        )
