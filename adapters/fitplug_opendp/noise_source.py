"""A plan's noise, ready to be drawn for counts of people with at most so many records each."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fitplug.counts import Tables
from fitplug.families import answer_exactly as strategy_answers
from fitplug.families import may_be_clamped
from fitplug.ledger import CellCosts, Entry
from fitplug.numeric import ceil_float
from fitplug.plan import Plan
from fitplug.release import Release
from fitplug.sensitivity import AnswerPath
from fitplug_opendp._compat import enable_contrib
from fitplug_opendp.counted_rows import find_limit, find_seal, list_outside_attributes
from fitplug_opendp.gaussian import (
    IntVector,
    Progress,
    Sampler,
    choose_contributions,
    make_noise,
    make_sampler,
    upper_sensitivity,
)
from fitplug_opendp.input_checks import check_tables
from fitplug_opendp.plan_checks import check_charge
from fitplug_opendp.sampler_check import check_sampler

CLAMPED = (
    "some answers are as large as 64-bit integers hold, so estimates of this release may be far "
    "too small: count fewer records, or design a plan of fewer or smaller tables"
)
"""The warning about clamped answers. It is decided from the noisy answers alone, so that it costs
no privacy; see `fitplug.families.base.answers.may_be_clamped`.
"""


@dataclass(frozen=True)
class NoiseSource:
    """The noise of one plan, what it costs, and the function that draws it.

    Attributes:
        plan: The plan with n strategy answers.
        contributions: The largest number of records that one person may have.
        rho: The zCDP cost for all records of one person, rounded up as OpenDP's map rounds it.
        charged: The exact rho that a ledger is charged, which is never less than `rho`.
        sample: The function that adds the noise to exact answers (n,).
    """

    plan: Plan
    contributions: int
    rho: float
    charged: Fraction
    sample: Sampler

    @classmethod
    def from_plan(cls, plan: Plan, contributions: int) -> NoiseSource:
        """Prepare the noise of a plan without drawing any.

        Args:
            plan: The plan.
            contributions: The largest number of records that one person may have.

        Returns:
            The noise, whose `rho` is what OpenDP's own map gives.

        Raises:
            BudgetError: The number of contributions is out of range.
            ImportError: OpenDP is not installed.
        """
        contributions = choose_contributions(plan, contributions)
        with enable_contrib():
            noise, sample = make_noise(plan), make_sampler(plan.strategy.size, plan.noise_std)
        rho = noise.map(upper_sensitivity(plan, contributions))
        charged = _raise_to_cell_costs(Fraction(rho), CellCosts.from_plan(plan, contributions))
        return cls(plan, contributions, rho, charged, sample)

    def check_plan(self, path: AnswerPath | None = None) -> None:
        """Check what the charge rests on. Call this before the ledger is charged.

        Args:
            path: How the answers will be computed, if not in memory.

        Raises:
            PlanError: A claim of the plan does not hold, or its answers cost more than the charge.
        """
        changes = self.plan.compare_records(self.contributions)
        check_charge(self.plan, self.charged, changes, path)

    def check_sampler(self) -> None:
        """Test OpenDP's sampler with known answers. Call this before the ledger is charged.

        Raises:
            SamplerError: The sampler does not draw the noise that privacy is proven for.
        """
        with enable_contrib():
            check_sampler(self.plan.noise_std)

    def draw(
        self,
        tables: Tables,
        answers: IntVector,
        progress: Progress | None,
        entry: Entry | None = None,
    ) -> Release:
        """Draw the noise. The caller must have charged the ledger, if there is one.

        Args:
            tables: The exact counts; the release says which rows they hold.
            answers: The exact answers (n,) from these counts, and then the public totals.
            progress: A function that is told how many answers are drawn.
            entry: The charge in the ledger.

        Returns:
            The release of the noisy answers.
        """
        size = self.plan.strategy.size
        noisy = self.sample(answers[:size], progress)
        if may_be_clamped(noisy, self.plan.noise_std):
            warnings.warn(CLAMPED, RuntimeWarning, stacklevel=3)
        return Release(
            plan=self.plan,
            answers=np.concatenate([noisy, answers[size:]]),
            rho=self.rho,
            contributions=self.contributions,
            entry=entry,
            limited=find_limit(tables),
            rows=tables.rows,
            seal=find_seal(tables),
            outside=list_outside_attributes(self.plan, tables),
        )


def compute_exact_answers(plan: Plan, tables: Tables) -> IntVector:
    """Compute the exact answers A x from counts. They are confidential.

    Args:
        plan: The plan with the strategy matrix A, which has n rows.
        tables: Exact counts that hold at least `plan.tables`.

    Returns:
        The exact answers (n,), clamped at +-2^62, and then the totals that the plan's unit of
        privacy makes public.

    Raises:
        TablesError: The tables are not what the plan needs.
    """
    check_tables(plan, tables)
    return strategy_answers(plan.strategy, tables.marginal)


def compute_charged_rho(plan: Plan, contributions: int) -> float:
    """Compute the rho that a release charges, without OpenDP.

    Args:
        plan: The plan.
        contributions: The largest number of records that one person may have.

    Returns:
        The zCDP cost for all records of one person, rounded up.
    """
    rho = (Fraction(upper_sensitivity(plan, contributions)) / Fraction(plan.noise_std)) ** 2 / 2
    return ceil_float(_raise_to_cell_costs(rho, CellCosts.from_plan(plan, contributions)))


def _raise_to_cell_costs(rho: Fraction, costs: CellCosts) -> Fraction:
    """Return rho, or the charge that the costs per cell require if that is more."""
    # The costs per cell are rounded up for one record; for many records they may exceed rho by a
    # unit in the last digit.
    return max(rho, costs.rho)
