"""The budget of a spec: its ledger, and checks that a plan fits it."""

from __future__ import annotations

import math
from fractions import Fraction

from fitplug.display import format_down, format_up
from fitplug.errors import LedgerError, OverBudget
from fitplug.files import LocalPlace
from fitplug.ledger import Ledger, read_statement
from fitplug.numeric import floor_written
from fitplug.plan import Plan
from fitplug_cli.render import read_release_record
from fitplug_cli.render.json_records import compute_rho
from fitplug_cli.spec import Spec
from fitplug_opendp.staging import find_unknown_charge


def open_ledger(spec: Spec) -> Ledger | None:
    """Open the ledger of a spec. A missing ledger is created by its first charge.

    Returns:
        The ledger; None if the spec says `ledger = false`.

    Raises:
        LedgerError: If the ledger is damaged, or was created with another budget.
    """
    if spec.ledger is None or spec.ledger_path is None:
        return None
    return Ledger(spec.ledger_path, **spec.ledger.amount, deferred=True)


def has_ledger_file(spec: Spec) -> bool:
    """Return whether the spec names a ledger that exists."""
    return spec.ledger_path is not None and spec.ledger_path.exists()


def check_ledger_is_kept(spec: Spec) -> None:
    """Check that the ledger of an earlier release in the spec's folder still exists.

    This includes a release whose answers are staged next to the folder, not yet published.

    Raises:
        LedgerError: If the ledger is missing. A new one would not know what was spent.
    """
    if spec.ledger is None or has_ledger_file(spec) or spec.output.is_url:
        return
    entry = read_release_record(LocalPlace(spec.output_dir)).get("ledger_entry")
    what, number = f"{spec.output_dir} holds a release that was", entry
    if entry is None:
        # The ledger is missing, so no charge is known.
        unknown = find_unknown_charge(list, LocalPlace(spec.output_dir.absolute()))
        what, number = unknown or ("", None)
    if number is not None:
        raise LedgerError(
            f"the ledger {spec.ledger_path} does not exist, but {what} charged to a ledger as "
            f"charge {number}. Restore the ledger from a backup."
        )


def find_budget_warning(spec: Spec, plan: Plan) -> str | None:
    """Warn if a plan costs more than the ledger of the spec has left.

    Returns:
        The warning; None if there is no ledger, the plan is not over budget, or the ledger is for
        another unit of privacy. A ledger that does not exist has its whole budget left.

    Raises:
        LedgerError: If the ledger is damaged, or was created with another budget.
    """
    if spec.ledger is None:
        return None
    left = spec.ledger.exact_total
    if has_ledger_file(spec):
        ledger = open_ledger(spec)
        assert ledger is not None
        ledger_unit = ledger.bound_unit
        if ledger_unit is not None and ledger_unit.complete(plan.bound_unit) != plan.bound_unit:
            return None
        left = read_statement(ledger)[0].left
    needed = compute_rho(plan)
    if Fraction(needed) <= left:
        return None
    shown = format_down(floor_written(left))
    return (
        f"{spec.path}: this plan costs rho = {format_up(needed)}, but the ledger "
        f"{spec.ledger_path} has {shown} left. `fitplug report {spec.path} --max-rho {shown}` "
        "shows how to relax the targets."
    )


def check_max_rho(spec: Spec, plan: Plan) -> None:
    """Check that a plan costs no more than the max_rho of the spec.

    Raises:
        OverBudget: If the plan costs more; the message names a factor for the targets.
    """
    most, needed = spec.privacy.max_rho, compute_rho(plan)
    if most is None or Fraction(needed) <= most:
        return
    # The next design may stop at another gap within the tolerance, so the factor allows for it.
    # It is then rounded up to 4 digits.
    factor = math.sqrt(needed / float(most) * (1 + spec.design.tolerance))
    digits = 10.0 ** (3 - math.floor(math.log10(factor)))
    relax = math.ceil(factor * digits) / digits
    raise OverBudget(
        f"{spec.path}: the targets cost rho = {format_up(needed)}, more than max_rho = "
        f"{float(most):g}. Multiply every std and moe by {relax:.4g}, or raise max_rho.",
        requested=needed,
        remaining=floor_written(most),
    )


def check_first_charge(spec: Spec, plan: Plan, covered_by: int | str | None) -> None:
    """Check a charge that would create the ledger.

    Args:
        spec: The spec, which names a ledger.
        plan: The plan that is charged.
        covered_by: The earlier charge that should cover the release, if any.

    Raises:
        LedgerError: If `covered_by` is given.
        OverBudget: If the plan costs more than the total budget.
    """
    assert spec.ledger is not None
    needed, total = compute_rho(plan), spec.ledger.exact_total
    if covered_by is not None:
        raise LedgerError(f"The ledger {spec.ledger_path} does not exist yet. Remove --covered-by.")
    if Fraction(needed) > total:
        shown = floor_written(total)
        raise OverBudget(
            f"{spec.path}: the release costs rho = {format_up(needed)}, more than the whole "
            f"[ledger] budget of {shown:g}. `fitplug report {spec.path} --max-rho "
            f"{format_down(shown)}` shows how to relax the targets.",
            requested=needed,
            remaining=shown,
        )
