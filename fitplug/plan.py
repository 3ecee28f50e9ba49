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
from scipy.linalg import solve_triangular

from fitplug import planfile
from fitplug.domain import Domain
from fitplug.errors import PlanError
from fitplug.objective import MAX_AXES, Objective
from fitplug.optimum import Ended
from fitplug.privacy import Method, delta_at, epsilon_at
from fitplug.rounding import UNIT, ceil_float, floor_float
from fitplug.strategy import Strategy
from fitplug.threads import one_blas_thread
from fitplug.tiers import Tier, Tiers, certified
from fitplug.verification import check_form, check_privacy, verify
from fitplug.workload import Workload

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
    p, q: the dual weights that prove it, shapes (d,) and (m,).
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
    weights: Tiers
    tolerance: float
    iterations: int
    ended: Ended

    @property
    def domain(self) -> Domain:
        return self.workload.domain

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
            self.strategy.variances(self.noise_std),
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
            return f"certified: within {self.gap:.1e} of the least possible"
        return (
            f"certified only to {self.gap:.1e} after {self.iterations} iterations, "
            f"{self.tolerance:.1e} was asked: {_REMEDIES[self.ended]}, or accept this gap"
        )

    @property
    def certificate(self) -> str:
        """What the lower bound says, in a sentence."""
        if self.objective.plain:
            return f"no mechanism that meets these targets costs less than {self.lower_bound:.6g}"
        return f"{self.objective}: {self.cost:.6g}, and no mechanism below {self.lower_bound:.6g}"

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
        return self.workload.split(self.strategy.variances(self.noise_std))

    @cached_property
    def targets(self) -> ByGroup:
        """Variance asked of each answer; per group, of the group's shape."""
        return MappingProxyType({g.name: g.variances for g in self.workload.groups})

    @cached_property
    def tables(self) -> tuple[tuple[str, ...], ...]:
        """Attribute sets whose exact counts the mechanism needs."""
        return self.strategy.basis.tables(self.workload)

    def profile(self) -> Array:
        """Privacy cost squared of each cell, rounded up, broadcastable to the domain's shape:
        attributes that no query uses have one cell here (and no axis in a domain of more
        attributes than an array has axes, 64). Its maximum is privacy_cost ** 2.
        """
        used = self.workload.attributes
        names = used if len(self.domain.names) > MAX_AXES else self.domain.names
        shape = [self.domain[n].size if n in used else 1 for n in names]
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
        duals = Tiers(
            self.weights.of_cell,
            np.vstack([self.p, self.weights.p]),
            np.vstack([self.q, self.weights.q]),
        )
        variances = self.strategy.variances(self.noise_std)
        with one_blas_thread():
            return tuple(
                certified(
                    self.workload.matrix(),
                    self.scale * self.workload.targets(),
                    self.objective,
                    self.objective.relative(self.strategy.profile(self.noise_std)),
                    self.objective.excess(variances),
                    duals,
                )
            )

    def sigma(self) -> tuple[Array, npt.NDArray[np.int64]]:
        """The covariance (n, n) of the noise on B x, and the integer basis B (n, d)."""
        inverse = solve_triangular(self.strategy.M.astype(np.float64), np.eye(len(self.strategy.M)))
        covariance = self.noise_std**2 * (inverse @ inverse.T)
        return covariance, self.strategy.basis.matrix(self.workload.matrix())

    @cached_property
    def representation(self) -> tuple[Array, Array]:
        """L (m, n) with W = L B in the strategy's basis, and bounds (m,) on its rows' errors."""
        with one_blas_thread():
            return self.strategy.basis.representation(self.workload.matrix())

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of everything the plan says."""
        return planfile.digest(*self._content())

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to one file; a NumPy .npz archive with its digest inside."""
        planfile.write(path, *self._content())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Plan:
        """Read a plan back. Raises PlanError if the file is no plan, is damaged, was edited, or
        claims another privacy cost than its integers have; `verify` checks every other claim.
        """
        header, arrays = planfile.read(path)
        try:
            plan = cls(
                workload=planfile.read_workload(header, arrays),
                strategy=Strategy(
                    basis=planfile.read_basis(header, arrays),
                    M=arrays["M"],
                    sensitivity_squared=int(header["sensitivity_squared"]),
                    column_squares=arrays["column_squares"],
                    unit_variances=arrays["unit_variances"],
                    max_records=int(header["max_records"]),
                ),
                objective=Objective(
                    arrays.get("budgets"), float.fromhex(header["total_error_weight"])
                ),
                noise_std=float.fromhex(header["noise_std"]),
                scale=float.fromhex(header["scale"]),
                lower_bound=float.fromhex(header["lower_bound"]),
                p=arrays["p"],
                q=arrays["q"],
                weights=Tiers(arrays["tiers.of_cell"], arrays["tiers.p"], arrays["tiers.q"]),
                tolerance=float(header["tolerance"]),
                iterations=int(header["iterations"]),
                ended=header["ended"],
            )
            check_form(plan)
            check_privacy(plan)
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
        with one_blas_thread():
            verify(self)

    def summary(self, delta: float = 1e-9) -> str:
        """A text table: what it costs, how close to the least, what each group asked and gets."""
        lines = [
            f"privacy cost  Delta = {self.privacy_cost:.6g}   rho = {self.rho:.6g} (zCDP)",
            f"epsilon       {self.epsilon(delta):.4g} at delta = {delta:g} (exact Gaussian curve); "
            f"{self.epsilon(delta, 'zcdp'):.4g} proven from rho for the discrete noise",
            f"optimality    {self.status}",
            f"              {self.certificate}",
            f"strategy      {len(self.strategy.M)} integer queries over "
            f"{self.workload.cell_count} cells; counts needed: "
            + ", ".join(" x ".join(t) or "total" for t in self.tables),
        ]
        if self.scale != 1.0:
            lines.append(
                f"targets       all variances scaled by {self.scale:.6g} to fit the budget"
            )
        rows = [("group", "queries", "target", "largest std", "of target")]
        rows += [
            (row.name, str(row.queries), row.target, f"{row.largest_std:.4g}", f"{row.used:.1%}")
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
        for group in self.workload.groups:
            variances = self.variances[group.name]
            used = float((variances / (self.scale * group.variances)).max())
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

    def __repr__(self) -> str:
        return (
            f"Plan(rho={self.rho:.6g}, gap={self.gap:.1e}, "
            f"{self.workload.query_count} queries, digest={self.digest[:12]})"
        )

    def _content(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        header, arrays = planfile.describe(self.workload, self.strategy.basis)
        header |= {
            "sensitivity_squared": str(self.strategy.sensitivity_squared),
            "max_records": self.strategy.max_records,
            "noise_std": self.noise_std.hex(),
            "scale": self.scale.hex(),
            "lower_bound": self.lower_bound.hex(),
            "tolerance": self.tolerance,
            "total_error_weight": self.objective.weight.hex(),
            "iterations": self.iterations,
            "ended": self.ended,
        }
        arrays |= {
            "M": self.strategy.M,
            "column_squares": self.strategy.column_squares,
            "unit_variances": self.strategy.unit_variances,
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
