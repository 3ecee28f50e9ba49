"""Plans: the mechanism that will run, what it promises, and the proof of how good it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike

from fitplug.display import Figure, format_up
from fitplug.families import Mechanism, build_dense_covariance
from fitplug.numeric import FloatArray, IntArray, guard_linear_algebra
from fitplug.plan.plan_file import plan_digest, read_plan, write_plan
from fitplug.plan.plan_record import PlanRecord
from fitplug.plan.summary import (
    GroupRow,
    describe_certificate,
    describe_groups,
    describe_status,
    find_causal_attributes,
    format_plan_html,
    plot_plan,
    summarise,
)
from fitplug.plan.verification import verify


@dataclass(frozen=True, eq=False)
class Plan(PlanRecord):
    """A designed mechanism with its cost, its variances and the proof of how good it is.

    `fitplug.design` makes it, and it cannot be changed. Its fields are those of
    `fitplug.plan.plan_record.PlanRecord`.
    """

    @property
    def status(self) -> str:
        """A sentence that says whether the tolerance was reached, and what to do if not."""
        return describe_status(self)

    @property
    def certificate(self) -> str:
        """A sentence that says what the lower bound proves."""
        return describe_certificate(self)

    @cached_property
    def causal_attributes(self) -> tuple[str, ...]:
        """The attributes along which the answers can be drawn period by period.

        That is read from the plan's integers, and `fitplug.design` makes it so with `periods`. An
        attribute of one cell is none of them.
        """
        return find_causal_attributes(self)

    def sigma(self) -> tuple[FloatArray, IntArray]:
        """Compute the covariance of the noise as one dense matrix.

        Returns:
            The covariance (k, k) of the noise on B x, in squared records, and the integer basis
            B (k, d) over the cells of the workload's attributes.

        Raises:
            WorkloadError: The matrices are too large to hold.
        """
        return build_dense_covariance(self.strategy, self.noise_std)

    def mechanisms(self) -> tuple[Mechanism, ...]:
        """List the parts of the mechanism that add noise, each with its sensitivity and sigma.

        Their rho add up to the plan's rho, up to rounding.

        Returns:
            One entry for each block of a plan whose attributes are all symmetric; one entry for
            all answers of any other plan.
        """
        return self.strategy.list_mechanisms(self.noise_std)

    @cached_property
    def digest(self) -> str:
        """The SHA-256, in hexadecimal digits, of the whole content of the plan."""
        return plan_digest(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to one file, a NumPy .npz archive that holds its own digest.

        Args:
            path: The file. A file that exists is replaced.

        Raises:
            OSError: The file cannot be written.
        """
        write_plan(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Plan:
        """Read a plan from a file that `save` wrote.

        Every claim is verified where that takes about a second at most. Of larger plans the privacy
        cost is, and `verify` checks the other claims; a release always verifies all of them. The
        digest in the file names the plan and notices damage. It proves no claim, as whoever edits
        the file can compute it again.

        Args:
            path: The file.

        Returns:
            The plan.

        Raises:
            PlanError: The file is not a plan, it is damaged or edited, it holds more than a plan,
                or a claim that was verified does not hold.
        """
        plan, digest = read_plan(path, cls)
        vars(plan)["digest"] = digest  # it was verified just now, and takes long for large plans
        return plan

    def verify(self) -> None:
        """Recompute cost, variances and the lower bound from the plan's own content.

        The verification uses the integer matrix, the workload and the dual weights, and no result
        of the solver.

        Raises:
            PlanError: A claim does not hold; the message says which one.
        """
        with guard_linear_algebra():
            verify(self)

    def summary(self, delta: float = 1e-9) -> str:
        """Format the plan as a text table.

        Args:
            delta: The delta at which epsilon is given.

        Returns:
            What the plan costs, how close this is to the least cost, and for each group the target
            and the standard deviation of its answers.
        """
        return summarise(self, delta)

    def group_rows(self) -> list[GroupRow]:
        """List for each group its target and the standard deviations of its answers."""
        return describe_groups(self)

    def plot(self) -> Figure:
        """Draw for each group its targets, the accuracy of its answers and its price.

        The targets are shown as standard deviations, after the multiplication by `scale`. The price
        is the group's share of rho; see `fitplug.plan.price_groups`. Of many groups
        only those with the highest prices are drawn.

        Returns:
            A figure of matplotlib.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return plot_plan(self)

    def _repr_html_(self) -> str:
        return format_plan_html(self, self.digest)

    def __repr__(self) -> str:
        return (
            f"Plan(rho={format_up(self.rho)}, unit={self.unit!r}, gap={format_up(self.gap, 2)}, "
            f"{self.workload.query_count} queries, digest={self.digest[:12]})"
        )
