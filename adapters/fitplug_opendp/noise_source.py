"""A plan's noise, its cost, and the checks before the charge.

A plan may come from a file, and somebody may edit the file and recompute its digest. So every claim
of a plan is proven anew by code that trusts no solver. Then the path that will compute the answers
computes those of neighbouring data sets, and their distance is compared with the charge; that check
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
"""The results for plans that this process has checked; plans never change."""


def check_plan(plan: Plan, path: AnswerPath | None = None) -> SensitivityCheck:
    """Verify a plan and check the sensitivity of its answers, once in this process.

    Args:
        plan: The plan.
        path: The computation of the answers, if not in memory. With a path, the sensitivity is
            always checked again.

    Returns:
        The result of the sensitivity check.

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
    """Return the result of this process's check of a plan; None if it has not checked the plan."""
    return _checked.get(plan)


def check_charge(plan: Plan, charged: Fraction, path: AnswerPath | None = None) -> None:
    """Check that the charge covers the cost of the plan's answers.

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

    The caller must have charged the ledger, if there is one, and must ensure that no other draw of
    these answers is ever published.

    Args:
        answers: The exact answers of the part, shape (n,).
        noise_std: The plan's standard deviation of the noise.
        run: The identifier of this run; a process tests its sampler once per run.

    Returns:
        The noisy answers, shape (n,).

    Raises:
        SamplerError: OpenDP's sampler fails its test.
        ImportError: OpenDP is not installed.
    """
    check_sampler_for(run, noise_std)
    with enable_contrib():
        sample = make_sampler(answers.size, noise_std, threads=1)
    return sample(answers, None)


def check_sampler_for(run: str, noise_std: float) -> None:
    """Test this process's sampler, unless it was tested for this run before.

    Raises:
        SamplerError: OpenDP's sampler fails its test.
        ImportError: OpenDP is not installed.
    """
    with _LOCK:  # one thread makes the test, and the others wait
        _check_once(run, noise_std)


@lru_cache(maxsize=256)
def _check_once(run: str, noise_std: float) -> None:
    with enable_contrib():
        check_sampler(noise_std)


CLAMPED = (
    "some answers reached the limit of 64-bit integers, so estimates of this release may be "
    "far too small. Count fewer rows, or design a plan with fewer or smaller tables."
)
"""The warning about clamped answers. It depends only on the noisy answers, so it costs no privacy;
see `fitplug.families.base.answers.may_be_clamped`.
"""


@dataclass(frozen=True)
class NoiseSource:
    """The noise of one plan, its cost, and the function that draws it.

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
            The noise, with the `rho` of OpenDP's own map.

        Raises:
            ImportError: OpenDP is not installed.
        """
        with enable_contrib():
            noise, sample = make_noise(plan), make_sampler(plan.strategy.size, plan.noise_std)
        rho = noise.map(upper_sensitivity(plan, plan.strategy.structure.changes))
        charged = _raise_to_cell_costs(Fraction(rho), CellCosts.from_plan(plan))
        return cls(plan, rho, charged, sample)

    def check_plan(self, path: AnswerPath | None = None) -> None:
        """Check that the charge covers the cost. Call this before the ledger is charged.

        Args:
            path: The computation of the answers, if not in memory.

        Raises:
            PlanError: A claim of the plan does not hold, or its answers cost more than the charge.
        """
        check_charge(self.plan, self.charged, path)

    def check_sampler(self) -> None:
        """Test OpenDP's sampler with known answers. Call this before the ledger is charged.

        Raises:
            SamplerError: OpenDP's sampler fails its test.
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
            tables: The exact counts; the release describes which rows they count.
            answers: The exact answers (n,) from these counts, followed by the public totals.
            progress: A function that is called with the number of answers drawn.
            entry: The charge in the ledger.

        Returns:
            The release of the noisy answers.
        """
        exact, public = self.plan.strategy.split_answers(answers)
        noisy = self.sample(exact, progress)
        if may_be_clamped(noisy, self.plan.noise_std):
            warnings.warn(CLAMPED, RuntimeWarning, stacklevel=3)
        outside = list_outside_attributes(self.plan, tables)
        described = self.describe(
            CountedRows.from_tables(tables), find_seal(tables), outside, entry
        )
        return replace(described, answers=np.concatenate([noisy, public]))

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
            seal: The seal of the exact counts, if the release publishes it.
            outside: Attributes that the plan does not use but by which records were left out.
            entry: The charge in the ledger; None if no ledger was charged.
            coverage: The noisy answers about records outside the domain.
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
        """Draw the noise of the coverage answers, after a test of the sampler.

        The caller must have charged the ledger, if there is one, and must ensure that no other draw
        of these answers is ever published.

        Args:
            outside: The exact numbers of these records.
            run: The identifier of this run.

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
        The exact answers (n,), clamped at +-2^62, followed by the totals that the plan's unit of
        privacy makes public.

    Raises:
        TablesError: The tables do not have all counts that the plan needs.
    """
    check_tables(plan, tables)
    return plan.strategy.answer_exactly(tables.marginal)


def compute_charged_rho(plan: Plan) -> float:
    """Compute the charge of a release in rho, without OpenDP.

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
    # The costs per cell are rounded up for one record. For many records they may exceed rho by a
    # unit in the last place.
    return max(rho, costs.rho)
