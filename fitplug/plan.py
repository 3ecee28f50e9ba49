"""Plans: the mechanism that will run, what it promises, and the proof of how good it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from os import PathLike
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug import notebook, planfile, plots
from fitplug.budgets import MAX_AXES
from fitplug.certificate import Frame, certified_bound
from fitplug.covariance import dense_covariance
from fitplug.domain import Domain
from fitplug.errors import PlanError
from fitplug.frozen import freeze
from fitplug.linearalgebra import linear_algebra
from fitplug.mechanisms import Mechanism, mechanisms
from fitplug.objective import Objective
from fitplug.optimum import Ended
from fitplug.privacy import Method, delta_at, epsilon_at
from fitplug.remedies import fewer_cells
from fitplug.rounding import UNIT, above, below, ceil_float, floor_float
from fitplug.strategy import Strategy
from fitplug.structure import Structure, listed
from fitplug.tiers import Tier, Tiers, certified
from fitplug.verification import check_form, check_privacy, verify
from fitplug.workload import Workload, largest_sets

Array: TypeAlias = npt.NDArray[np.float64]
ByGroup: TypeAlias = Mapping[str, npt.NDArray[Any]]


_REMEDIES = {
    "reached": "the rest is lost to rounding: bring targets and coefficients closer together",
    "exhausted": "raise max_iterations",
    "stopped": "it was stopped; let it run on",
}


@dataclass(frozen=True, eq=False)
class Plan:
    """A designed mechanism. Made by `fitplug.design`; immutable.

    workload: the queries and targets it was designed for.
    strategy: the integer strategy that runs. noise_std: sigma of its discrete Gaussian noise.
    objective: what was made least, beyond the plain privacy cost.
    scale: k of the paper's Problem 2; variances are at most scale * targets. 1.0 when accuracy
        was prioritised.
    lower_bound: certified; no mechanism meeting scale * targets with Gaussian noise costs less.
        With another objective than the plain one, a bound on that; see `cost`.
    p, q: the dual weights that prove it, over the dense cells (D,) and rows (m,) of the
        strategy's structure; products of them in the residual family, whose norm is pinched in
        `frame`.
    weights: the dual weights of the further tiers; see `tiers`.
    tolerance: what was asked of the solver. iterations: what it took. ended: why it ended.
    """

    workload: Workload
    strategy: Strategy
    objective: Objective
    noise_std: float
    scale: float
    lower_bound: float
    p: Array
    q: Array
    frame: Frame
    weights: Tiers
    tolerance: float
    iterations: int
    ended: Ended

    def __post_init__(self) -> None:
        freeze(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        freeze(self)  # unpickled arrays may be written to

    @property
    def domain(self) -> Domain:
        return self.workload.domain

    @property
    def structure(self) -> Structure:
        """The symmetry of the workload, and the blocks that it leaves."""
        return self.strategy.structure

    @cached_property
    def rho_exact(self) -> Fraction:
        """rho of zCDP for one record added or removed, exact."""
        return self.strategy.rho_exact(self.noise_std)

    @cached_property
    def rho(self) -> float:
        """`rho_exact` rounded up through the rounded sensitivity, as OpenDP's map does."""
        return self.strategy.rho(self.noise_std)

    @cached_property
    def privacy_cost(self) -> float:
        """Delta of the integer mechanism, rounded up, and its square too."""
        cost = ceil_float(Fraction(self.strategy.sensitivity) / Fraction(self.noise_std))
        # The square of a float rounds to the nearest: it might be below the profile's largest.
        return cost if cost * cost >= 2 * self.rho_exact else math.nextafter(cost, math.inf)

    @cached_property
    def cost(self) -> float:
        """What was made least: the privacy cost, or with cell budgets or a weight on the total
        squared error the value of that objective (see `fitplug.objective`), rounded up.
        """
        return self.objective.value(
            self.privacy_cost,
            self.strategy.profile(self.noise_std),
            self.strategy.total_variance(self.noise_std),
        )

    @property
    def gap(self) -> float:
        """cost / lower_bound - 1, rounding to integers included; cost is the privacy cost unless
        another objective was asked for.
        """
        return self.cost / self.lower_bound - 1

    @property
    def status(self) -> str:
        """Whether the tolerance was reached, and what to do if not."""
        if self.gap <= self.tolerance:
            return f"certified: within {above(self.gap, 2)} of the least possible"
        return (
            f"certified only to {above(self.gap, 2)} after {self.iterations} iterations, "
            f"{self.tolerance:.1e} was asked: {self._remedy}, or accept this gap"
        )

    @property
    def _remedy(self) -> str:
        if self.ended != "apart":
            return _REMEDIES[self.ended]
        names = self.structure.ordered
        fewer = "" if len(names) == 1 else f"ask fewer of {listed(names)} together, or "
        return f"for the optimum, {fewer}take {fewer_cells(self.domain, names)}"

    @property
    def certificate(self) -> str:
        """What the lower bound says, in a sentence."""
        bound = below(self.lower_bound)
        if self.objective.plain:
            return f"no mechanism that meets these targets costs less than {bound}"
        return f"{self.objective}: {above(self.cost)}, and no mechanism below {bound}"

    def epsilon(self, delta: float, method: Method = "gaussian") -> float:
        """Least epsilon at delta: the exact Gaussian curve, or with method="zcdp" the conversion
        from rho that is proven for the discrete noise. Raises BudgetError.
        """
        return epsilon_at(self.privacy_cost, delta, method)

    def delta(self, epsilon: float, method: Method = "gaussian") -> float:
        """Least delta at epsilon; see `epsilon`. Raises BudgetError."""
        return delta_at(self.privacy_cost, epsilon, method)

    @cached_property
    def variances(self) -> ByGroup:
        """Variance of each answer, rounded up; per group, of the group's shape."""
        return self.structure.by_group(self.strategy.variances(self.noise_std))

    @cached_property
    def targets(self) -> ByGroup:
        """Variance asked of each answer; per group, of the group's shape."""
        return MappingProxyType({g.name: g.variances for g in self.workload.groups})

    @cached_property
    def tables(self) -> tuple[tuple[str, ...], ...]:
        """Attribute sets whose exact counts the mechanism needs."""
        needed: dict[tuple[str, ...], None] = {}
        for family in self.strategy.families:
            for block in family.blocks.tolist():
                needed |= dict.fromkeys(sorted(family.basis.tables(self.structure, block)))
        # Together they name every attribute the workload uses, even where the answers would not
        # need one: a record outside the domain on it must be left out of all tables.
        named = {name for names in needed for name in names}
        for group in self.workload.groups:
            if not named.issuperset(group.attributes):
                needed[self.domain.ordered(group.attributes)] = None
                named.update(group.attributes)
        return largest_sets(needed)

    def profile(self) -> Array:
        """Privacy cost squared of each cell, rounded up, broadcastable to the domain's shape:
        attributes whose cells all cost the same, since no query uses them or by symmetry, have one
        cell here (and no axis in a domain of more attributes than an array has axes, 64). Its
        maximum is privacy_cost ** 2. In the residual family, which tells no cells apart, it is that
        everywhere, and `slack` is 0.
        """
        dense = self.structure.dense
        names = dense if len(self.domain.names) > MAX_AXES else self.domain.names
        shape = [self.domain[n].size if n in dense else 1 for n in names]
        return self.strategy.profile(self.noise_std).reshape(shape)

    def slack(self) -> Array:
        """What each cell has left below the plan's cost: privacy_cost ** 2 - profile, rounded
        down, >= 0; of the shape of `profile`. As cell_budgets of another design it makes queries
        for free: at no cell do both profiles come to more than twice this plan's rho.
        """
        most = floor_float(2 * self.rho_exact)
        return np.maximum((most - self.profile()) * (1 - 2 * UNIT), 0.0)

    @cached_property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers of the profile in the paper's refined privacy ordering, the costliest first.

        Cells that no query counts are in none. Computed from the dual weights: a singular value
        decomposition for each tier.
        """
        if self.structure.ordered:  # no cells are told apart
            level = self.strategy.profile(self.noise_std)[0]
            return (Tier(1, float(level), self.lower_bound**2 * (1 - 4 * UNIT)),)
        duals = Tiers(
            self.weights.of_cell,
            np.vstack([self.p, self.weights.p]),
            np.vstack([self.q, self.weights.q]),
        )
        profile = self.objective.relative(self.strategy.profile(self.noise_std))
        excess = self.objective.excess(self.strategy.total_variance(self.noise_std))
        with linear_algebra():
            return tuple(certified(self.bound_at, profile, excess, duals))

    def bound_at(self, p: Array, q: Array) -> float:
        """The certified lower bound that dual weights p and q give, of the plan's shapes; any will
        do.
        """
        return certified_bound(self.structure, self.objective, self.scale, p, q, self.frame)

    def sigma(self) -> tuple[Array, npt.NDArray[np.int64]]:
        """The covariance (k, k) of the noise on B x, and the integer basis B (k, d) over the cells
        of the workload's attributes. Raises WorkloadError if they are too large to hold.
        """
        return dense_covariance(self.strategy, self.noise_std)

    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What runs, apart: name, kind, sensitivity, sigma, dimension; see `fitplug.mechanisms`."""
        return mechanisms(self)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of everything the plan says."""
        return planfile.digest(*self._content())

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to one file; a NumPy .npz archive with its digest inside."""
        planfile.write(path, *self._content())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Plan:
        """Read a plan back. Raises PlanError if the file is no plan, is damaged or was edited, says
        anything that is not part of a plan, or claims another privacy cost, or room for another
        number of records, than its integers have; `verify` checks every other claim.
        """
        header, arrays = planfile.read(path)
        try:
            plan = cls(
                workload=(workload := planfile.read_workload(header, arrays)),
                strategy=planfile.read_strategy(workload, header, arrays),
                objective=Objective(
                    arrays.get("budgets"), float.fromhex(header["total_error_weight"])
                ),
                noise_std=float.fromhex(header["noise_std"]),
                scale=float.fromhex(header["scale"]),
                lower_bound=float.fromhex(header["lower_bound"]),
                p=arrays["p"],
                q=arrays["q"],
                frame=Frame(int(header["frame"][0]), float.fromhex(header["frame"][1])),
                weights=Tiers(arrays["tiers.of_cell"], arrays["tiers.p"], arrays["tiers.q"]),
                tolerance=float(header["tolerance"]),
                iterations=int(header["iterations"]),
                ended=header["ended"],
            )
            check_form(plan)
            check_privacy(plan)
            if plan.digest != planfile.digest(header, arrays):
                raise PlanError("it holds more than a plan does, or writes it in another form")
        except PlanError as error:
            raise PlanError(f"{path}: {error}; design the plan again") from None
        except Exception:  # whatever parts that are missing or of another kind make of it
            raise PlanError(f"{path}: the plan file is incomplete; design the plan again") from None
        return plan

    def verify(self) -> None:
        """Recompute cost, variances and the lower bound from the plan's own content.

        Uses nothing of the solver: the integer matrix, the workload and the dual weights alone.
        Raises PlanError, saying which claim does not hold.
        """
        with linear_algebra():
            verify(self)

    def summary(self, delta: float = 1e-9) -> str:
        """A text table: what it costs, how close to the least, what each group asked and gets."""
        lines = [
            f"privacy cost  Delta = {above(self.privacy_cost)}   rho = {above(self.rho)} (zCDP)",
            f"epsilon       {above(self.epsilon(delta), 4)} at delta = {delta:g} "
            f"(exact Gaussian curve); {above(self.epsilon(delta, 'zcdp'), 4)} "
            "proven from rho for the discrete noise",
            f"optimality    {self.status}",
            f"              {self.certificate}",
            f"structure     {self.structure}",
            f"strategy      {self.strategy.size:,} integer queries; counts needed: "
            + listed([" x ".join(t) or "total" for t in self.tables]),
        ]
        if self.scale != 1.0:
            lines.append(
                f"targets       all variances scaled by {above(self.scale)} to fit the budget"
            )
        rows = [("group", "queries", "target", "largest std", "of target")]
        rows += [
            (row.name, f"{row.queries:,}", row.target, above(row.largest_std, 4), f"{row.used:.1%}")
            for row in self.group_rows()
        ]
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        lines.append("")
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(r, widths, strict=True)).rstrip()
            for r in rows
        ]
        return "\n".join(lines)

    def group_rows(self) -> list[GroupRow]:
        """Per group: what it asked and what it gets."""
        rows = []
        # By rows of the structure: a group may have more answers than can be looked at.
        starts = self.structure.starts
        proven, targets = self.strategy.variances(self.noise_std), self.structure.targets
        for group, start, end in zip(self.workload.groups, starts, starts[1:], strict=False):
            variances = proven[start:end]
            used = float((variances / (self.scale * targets[start:end])).max())
            rows.append(
                GroupRow(
                    name=group.name,
                    queries=group.size,
                    target=group.target.describe(),
                    smallest_std=math.sqrt(float(variances.min())),
                    largest_std=math.sqrt(float(variances.max())),
                    used=used,
                )
            )
        return rows

    def plot(self) -> plots.Figure:
        """A matplotlib Figure: per group, the std that was asked for (at `scale`) and that of the
        answers, and its part of the privacy cost (see `fitplug.prices`); of many groups, the
        costliest. Raises ImportError without matplotlib.
        """
        return plots.plot_plan(self)

    def _repr_html_(self) -> str:
        return notebook.plan_html(self)

    def __repr__(self) -> str:
        return (
            f"Plan(rho={above(self.rho)}, gap={above(self.gap, 2)}, "
            f"{self.workload.query_count} queries, digest={self.digest[:12]})"
        )

    def _content(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        header, arrays = planfile.describe(self.workload)
        of_strategy = planfile.describe_strategy(self.strategy)
        header, arrays = header | of_strategy[0], arrays | of_strategy[1]
        header |= {
            "noise_std": self.noise_std.hex(),
            "scale": self.scale.hex(),
            "lower_bound": self.lower_bound.hex(),
            "tolerance": self.tolerance,
            "total_error_weight": self.objective.weight.hex(),
            "iterations": self.iterations,
            "ended": self.ended,
            "frame": [self.frame.columns, self.frame.tilt.hex()],
        }
        arrays |= {
            "p": self.p,
            "q": self.q,
            "tiers.of_cell": self.weights.of_cell,
            "tiers.p": self.weights.p,
            "tiers.q": self.weights.q,
        }
        if self.objective.budgets is not None:
            arrays["budgets"] = self.objective.budgets
        return header, arrays


@dataclass(frozen=True)
class GroupRow:
    """What a group asked and gets. used: largest variance over (scaled) target, at most 1."""

    name: str
    queries: int
    target: str
    smallest_std: float
    largest_std: float
    used: float
