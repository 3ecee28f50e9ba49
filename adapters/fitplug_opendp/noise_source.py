"""A plan's noise, what it costs, and what the charge rests on, which is checked before it is made.

A plan may come from a file, and a file may be edited by somebody who computes its digest again. So
every claim of a plan is proven anew by code that trusts no solver. Then the answers of neighbouring
data sets are compared, by the path that will compute them, with what will be charged; that check
trusts no code of costs either.
"""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np

from fitplug.counts import OutsideCounts, Tables
from fitplug.families import may_be_clamped
from fitplug.ledger import CellCosts, Entry
from fitplug.numeric import ceil_float
from fitplug.plan import Plan
from fitplug.releases import Release
from fitplug.sensitivity import AnswerPath, SensitivityCheck, check_sensitivity, make_plan_error
from fitplug_opendp._compat import enable_contrib
from fitplug_opendp.count_checks import (
    CountedRows,
    check_tables,
    find_seal,
    list_outside_attributes,
)
from fitplug_opendp.gaussian import (
    IntVector,
    Progress,
    Sampler,
    make_noise,
    make_sampler,
    upper_sensitivity,
)
from fitplug_opendp.sampler_check import check_sampler

_checked: WeakKeyDictionary[Plan, SensitivityCheck] = WeakKeyDictionary()
"""What was found of the plans that this process has checked: no plan changes."""


def check_plan(plan: Plan, path: AnswerPath | None = None) -> SensitivityCheck:
    """Verify a plan and check the sensitivity of its answers, once in this process.

    Args:
        plan: The plan.
        path: How the answers will be computed, if not in memory. Then they are always compared.

    Returns:
        What the check of the sensitivity has compared.

    Raises:
        PlanError: A claim of the plan does not hold.
    """
    check = _checked.get(plan)
    if check is None:
        plan.verify()
    if check is None or path is not None:
        check = check_sensitivity(path or AnswerPath.in_memory(plan))
        _checked[plan] = check
    return check


def find_check(plan: Plan) -> SensitivityCheck | None:
    """Return what this process has found of a plan; None if it has not checked the plan."""
    return _checked.get(plan)


def check_charge(plan: Plan, charged: Fraction, path: AnswerPath | None = None) -> None:
    """Check what a charge rests on.

    Args:
        plan: The plan.
        charged: The charge in rho of zCDP.
        path: As for `check_plan`.

    Raises:
        PlanError: A claim of the plan does not hold, or the answers of two neighbouring data sets
            cost more than the charge.
    """
    check = check_plan(plan, path)
    if check.largest_squared / (2 * Fraction(plan.noise_std) ** 2) > charged:
        raise make_plan_error(plan, "would be charged less than its answers cost")


_LOCK = threading.Lock()


def draw_part(answers: IntVector, noise_std: float, run: str) -> IntVector:
    """Add noise to some exact answers, on this thread, after a test of this process's sampler.

    The caller must have charged the ledger, if there is one, and must see to it that no other draw
    of these answers is ever published.

    Args:
        answers: The exact answers of the part, shape (n,).
        noise_std: The plan's standard deviation of the noise.
        run: What distinguishes this run from others; a process tests its sampler once for each.

    Returns:
        The noisy answers, shape (n,).

    Raises:
        SamplerError: OpenDP's sampler does not draw the noise that privacy is proven for.
        ImportError: OpenDP is not installed.
    """
    check_sampler_for(run, noise_std)
    with enable_contrib():
        sample = make_sampler(answers.size, noise_std, threads=1)
    return sample(answers, None)


def check_sampler_for(run: str, noise_std: float) -> None:
    """Test this process's sampler, unless it was tested for this run before.

    Raises:
        SamplerError: OpenDP's sampler does not draw the noise that privacy is proven for.
        ImportError: OpenDP is not installed.
    """
    with _LOCK:  # the other threads wait for the test that one of them makes
        _check_once(run, noise_std)


@lru_cache(maxsize=256)
def _check_once(run: str, noise_std: float) -> None:
    with enable_contrib():
        check_sampler(noise_std)


CLAMPED = (
    "some answers reached the limit of 64-bit integers, so estimates of this release may be "
    "far too small. Count fewer rows, or design a plan with fewer or smaller tables."
)
"""The warning about clamped answers. It is decided from the noisy answers alone, so that it costs
no privacy; see `fitplug.families.base.answers.may_be_clamped`.
"""


@dataclass(frozen=True)
class NoiseSource:
    """The noise of one plan, what it costs, and the function that draws it.

    Attributes:
        plan: The plan with n strategy answers.
        rho: The zCDP cost for one person in the plan's unit of privacy, rounded up as OpenDP's map
            rounds it.
        charged: The exact rho that a ledger is charged, which is never less than `rho`.
        sample: The function that adds the noise to exact answers (n,).
    """

    plan: Plan
    rho: float
    charged: Fraction
    sample: Sampler

    @classmethod
    def from_plan(cls, plan: Plan) -> NoiseSource:
        """Prepare the noise of a plan without drawing any.

        Args:
            plan: The plan.

        Returns:
            The noise, whose `rho` is what OpenDP's own map gives.

        Raises:
            ImportError: OpenDP is not installed.
        """
        with enable_contrib():
            noise, sample = make_noise(plan), make_sampler(plan.strategy.size, plan.noise_std)
        rho = noise.map(upper_sensitivity(plan, plan.strategy.structure.changes))
        charged = _raise_to_cell_costs(Fraction(rho), CellCosts.from_plan(plan))
        return cls(plan, rho, charged, sample)

    def check_plan(self, path: AnswerPath | None = None) -> None:
        """Check what the charge rests on. Call this before the ledger is charged.

        Args:
            path: How the answers will be computed, if not in memory.

        Raises:
            PlanError: A claim of the plan does not hold, or its answers cost more than the charge.
        """
        check_charge(self.plan, self.charged, path)

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
        outside = list_outside_attributes(self.plan, tables)
        described = self.describe(
            CountedRows.from_tables(tables), find_seal(tables), outside, entry
        )
        return replace(described, answers=np.concatenate([noisy, answers[size:]]))

    def describe(
        self,
        rows: CountedRows,
        seal: str | None,
        outside: tuple[str, ...],
        entry: Entry | None,
        coverage: IntVector | None = None,
    ) -> Release:
        """Make the release without its answers.

        Args:
            rows: The rows that are counted.
            seal: The seal of the exact counts, if the release has it.
            outside: Attributes without use in the plan by which the count left records out.
            entry: The charge in the ledger; None if none was charged.
            coverage: The noisy answers about records in no table.
        """
        return Release(
            plan=self.plan,
            answers=np.zeros(0, dtype=np.int64),
            rho=self.rho,
            entry=entry,
            limited=rows.limited,
            rows=rows.rows,
            seal=seal,
            outside=outside,
            coverage_answers=coverage,
        )

    def draw_coverage(self, outside: OutsideCounts | None, run: str) -> IntVector | None:
        """Draw the noise of the answers about records in no table, after a test of the sampler.

        The caller must have charged the ledger, if there is one, and must see to it that no other
        draw of these answers is ever published.

        Args:
            outside: The exact numbers of these records.
            run: What distinguishes this run from others.

        Returns:
            The noisy answers; None if the plan has no coverage.
        """
        coverage = self.plan.coverage
        if coverage is None:
            return None
        assert outside is not None  # checked with the counts
        assert outside.names == coverage.names
        exact = coverage.answer_exactly(outside.by_attribute, outside.in_no_table)
        return draw_part(exact, self.plan.noise_std, run)


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
    return plan.strategy.answer_exactly(tables.marginal)


def compute_charged_rho(plan: Plan) -> float:
    """Compute the rho that a release charges, without OpenDP.

    Args:
        plan: The plan.

    Returns:
        The zCDP cost for one person in the plan's unit of privacy, rounded up.
    """
    rho = (
        Fraction(upper_sensitivity(plan, plan.strategy.structure.changes))
        / Fraction(plan.noise_std)
    ) ** 2 / 2
    return ceil_float(_raise_to_cell_costs(rho, CellCosts.from_plan(plan)))


def _raise_to_cell_costs(rho: Fraction, costs: CellCosts) -> Fraction:
    """Return rho, or the charge that the costs per cell require if that is more."""
    # The costs per cell are rounded up for one record; for many records they may exceed rho by a
    # unit in the last digit.
    return max(rho, costs.rho)
