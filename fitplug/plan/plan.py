"""Plans: the mechanism that will run, what it promises, and the proof of how good it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike

from fitplug.display import Figure, format_up
from fitplug.errors import PlanError
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
from fitplug.plan.verification import describe_failure, verify


@dataclass(frozen=True, eq=False)
class Plan(PlanRecord):
    """Noise that meets the targets, its cost, and a proof of how close this cost is to the least.

    `fitplug.design` makes a plan. A plan cannot be changed. The fields of a plan are documented in
    `fitplug.plan.plan_record.PlanRecord`.

    Example:
        >>> plan = fp.design(workload, unit=fp.AddRemove())
        >>> plan.rho_lower_bound <= plan.rho
        True
    """

    @property
    def status(self) -> str:
        """A sentence that states whether the tolerance was reached and, if not, what to do."""
        return describe_status(self)

    @property
    def certificate(self) -> str:
        """A sentence that states what the lower bound proves."""
        return describe_certificate(self)

    @cached_property
    def causal_attributes(self) -> tuple[str, ...]:
        """The attributes along which the answers can be drawn period by period.

        The plan's integer matrix determines these attributes. To make sure that an attribute is
        among them, pass it to `fitplug.design` as `periods`. Attributes with one cell are not
        included.
        """
        return find_causal_attributes(self)

    def sigma(self) -> tuple[FloatArray, IntArray]:
        """Compute the covariance of the noise as one dense matrix.

        Returns:
            The covariance (k, k) of the noise on B x, in squared counts, and the integer matrix B
            (k, d). The vector x has the counts of the d cells of the workload's attributes.

        Raises:
            WorkloadError: The matrices do not fit into memory.

        Example:
            >>> covariance, basis = plan.sigma()
            >>> basis.shape[1] == workload.cell_count
            True
        """
        return build_dense_covariance(self.strategy, self.noise_std)

    def mechanisms(self) -> tuple[Mechanism, ...]:
        """List the parts of the mechanism that add noise, each with its sensitivity and sigma.

        Their costs add up to the plan's rho, up to rounding.

        Returns:
            If all queries use only "identity" and "total", one entry for each set of attributes;
            otherwise one entry for all answers.

        Example:
            >>> len(plan.mechanisms()) >= 1
            True
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

        Example:
            >>> plan.save(folder / "plan.npz")
            >>> fp.Plan.load(folder / "plan.npz").digest == plan.digest
            True
        """
        write_plan(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Plan:
        """Read a plan from a file that `save` wrote.

        Every claim of the plan is verified if this takes at most about a second. For larger plans
        only the privacy cost is verified; `verify` checks the other claims, and a release always
        verifies all claims. The digest in the file identifies the plan and detects damage. The
        digest does not prove where the file comes from, because anyone who edits the file can
        compute a new digest.

        Args:
            path: The file.

        Returns:
            The plan.

        Raises:
            PlanError: The file is not a plan, it is damaged or was edited, or a verified claim does
                not hold.

        Example:
            >>> plan.save(folder / "plan.npz")
            >>> fp.Plan.load(folder / "plan.npz").rho == plan.rho
            True
        """
        plan, digest = read_plan(path, cls)
        vars(plan)["digest"] = digest  # it was verified just now, and takes long for large plans
        return plan

    def verify(self) -> None:
        """Recompute cost, variances and the lower bound from the plan itself.

        The verification uses the plan's integer matrix, the workload, and the weights that prove
        the lower bound. It uses no other result of the solver. It also answers the queries on
        invented counts without noise, and compares these answers with the true answers. This last
        check is skipped if there are more than about four million cells or answers.

        Raises:
            PlanError: A claim does not hold; the message names it.

        Example:
            >>> plan.verify()
        """
        try:
            with guard_linear_algebra():
                verify(self)
        except PlanError as error:
            raise PlanError(describe_failure(error)) from None

    def summary(self, delta: float = 1e-9) -> str:
        """Format the plan as a text table.

        Args:
            delta: The delta at which epsilon is given.

        Returns:
            A table with the plan's cost, how close this is to the least possible cost, and the
            target and standard deviation of each group.

        Example:
            >>> print(plan.summary().splitlines()[0])
            unit          one row added or removed
        """
        return summarise(self, delta)

    def group_rows(self) -> list[GroupRow]:
        """List the target of each group and the standard deviations of its answers."""
        return describe_groups(self)

    def plot(self) -> Figure:
        """Plot the targets, the accuracy and the price of each group.

        Targets are shown as standard deviations, after their variances are multiplied by `scale`.
        The price is the group's share of rho; see `fitplug.plan.price_groups`. If there are many
        groups, only the most expensive are plotted.

        Returns:
            A matplotlib Figure.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return plot_plan(self)

    def _repr_html_(self) -> str:
        return format_plan_html(self, self.digest)

    def __repr__(self) -> str:
        return (
            f"Plan(rho={format_up(self.rho, 6)}, unit={self.unit!r}, gap={format_up(self.gap, 2)}, "
            f"{self.workload.query_count} queries, digest={self.digest[:12]})"
        )
