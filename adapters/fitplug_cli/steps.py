"""The steps before a release: check, design and count. Each command is some of them; those that
charge and draw are in `fitplug_cli.publishing`.
"""

from __future__ import annotations

import contextlib
import glob
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from fitplug.counts import Tables
from fitplug.display import format_up
from fitplug.errors import FitplugError, InputError, LedgerError, OverBudget
from fitplug.files import compute_digest
from fitplug.ledger import Ledger
from fitplug.numeric import floor_float
from fitplug.plan import Plan, describe
from fitplug.plan import design as design_plan
from fitplug_cli import costs, countsfile, output, show
from fitplug_cli.files import check_target, replacing
from fitplug_cli.spec import Spec, SpecError
from fitplug_opendp.staged_answers import find_kept_plan

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_SECONDS = 10


def check_places(spec: Spec) -> None:
    """Refuse, before any work, what could not be written or charged later. Raises InputError."""
    apart = {}
    if spec.data.local is not None and not glob.has_magic(spec.data.local):
        apart["the data"] = Path(spec.source)
    if spec.ledger is not None:
        ledger = spec.resolve(spec.ledger.path)
        apart["the ledger"] = ledger
        try:
            if ledger.exists():
                Ledger(ledger, **spec.ledger.amount)
            elif not ledger.absolute().parent.is_dir():
                raise LedgerError(f"{ledger} has no folder to be in; make the folder first")
        except (LedgerError, OSError) as error:
            raise SpecError(f"{spec.path}: [ledger] {error}") from None
    output.check_place(spec.output_dir, apart)


def design(spec: Spec) -> Plan:
    """The plan for a spec. Raises OverBudget if the targets cost more than max_rho."""
    plan = optimum(spec)
    _check_max_rho(spec, plan)
    return plan


def optimum(spec: Spec) -> Plan:
    """The plan for a spec, whatever it costs. Raises SpecError."""
    square = spec.data.contributions**2
    rho = spec.privacy.rho
    if rho is not None and square > 1:
        # Below rho / k^2 by more than OpenDP's map for k records rounds up by.
        rho = floor_float(Fraction(rho) / square * (1 - Fraction(1, 2**49)))
    with show.bar("design") as bar:
        try:
            plan = design_plan(
                spec.workload,
                rho=rho,
                **spec.design.model_dump(),
                progress=show.gap_progress(bar, spec.design.tolerance),
            )
        except InputError as error:
            raise SpecError(f"{spec.path}: {error}") from None
    return plan


def open_ledger(spec: Spec) -> Ledger | None:
    """The ledger of a spec, begun if it does not exist; None if the spec names none."""
    if spec.ledger is None:
        return None
    return Ledger(spec.resolve(spec.ledger.path), **spec.ledger.amount)


def plan_for(spec: Spec, path: Path | None, key: str | None) -> Plan:
    """The plan from a file, or of the release of this key that is retried, or a new one. Raises as
    these do.
    """
    if path is not None:
        return saved_plan(spec, path)
    if spec.ledger is not None and spec.resolve(spec.ledger.path).exists():
        ledger = open_ledger(spec)
        assert ledger is not None
        kept = find_kept_plan(ledger, spec.output_dir, key)
        if kept is not None and _fits(spec, kept) and _was_asked_so(spec, kept):
            return kept
    return design(spec)


def _was_asked_so(spec: Spec, plan: Plan) -> bool:
    """Whether a plan was designed with the spec's options."""
    weight = plan.objective.weight
    return (plan.tolerance, weight) == (spec.design.tolerance, spec.design.total_error_weight)


def _fits(spec: Spec, plan: Plan) -> bool:
    """Whether a plan is for the spec's queries, targets and budget."""
    rho, spent = spec.privacy.rho, cost(spec, plan)
    paid = plan.scale == 1.0 if rho is None else rho * (1 - 1e-9) <= spent <= rho
    return paid and compute_digest(*describe(plan.workload)) == compute_digest(
        *describe(spec.workload)
    )


def saved_plan(spec: Spec, path: Path) -> Plan:
    """A plan from a file. Raises InputError if it is damaged or was designed for another spec,
    OverBudget if it costs more than max_rho.
    """
    plan = Plan.load(path)
    try:
        plan.verify()
    except InputError as error:
        raise InputError(f"{path}: {error}; design the plan again") from None
    same = compute_digest(*describe(plan.workload)) == compute_digest(*describe(spec.workload))
    rho, spent = spec.privacy.rho, cost(spec, plan)
    fits = plan.scale == 1.0 if rho is None else rho * (1 - 1e-9) <= spent <= rho
    if not same or not fits:
        what = "spec" if not same else "rho or number of contributions"
        raise InputError(
            f"{path}: this plan was designed for another {what} than {spec.path}; design it again"
        )
    _check_max_rho(spec, plan)
    return plan


def save_plan(plan: Plan, path: Path) -> None:
    """Write a plan to a file. Raises WriteError."""
    with replacing(path) as partial:
        plan.save(partial)
        partial.chmod(0o644)


def check_plan_target(path: Path) -> None:
    """Raise InputError if a plan should not be written here."""
    check_target(path, Plan.load)


def check_counts_target(path: Path) -> None:
    """Raise InputError if counts should not be written here."""
    check_target(path, countsfile.read)


def check_checkpoint(spec: Spec, checkpoint: Path | None) -> None:
    """Refuse early a checkpoint that could not be kept. Raises InputError."""
    if checkpoint is None:
        return
    if spec.data.person is not None:
        raise InputError(
            f"--checkpoint {checkpoint} cannot be kept of a count with [data] person, whose rows "
            "are never written to a file; leave it out"
        )
    from fitplug_dask.checkpoint import check_folder

    check_folder(checkpoint)


def count(spec: Spec, plan: Plan, checkpoint: Path | None = None) -> Tables:
    """The exact tables the plan needs. Raises DataError; FitplugError if no cluster answers.

    checkpoint: a folder that keeps finished counts until all are.
    """
    import fitplug_dask

    show.rows(spec.data)
    with _client(spec) as client, show.bar("count") as bar:
        return fitplug_dask.count(
            spec.source,
            plan,
            client=client,
            progress=lambda done, rows: bar.show(done / rows if rows else 1.0),
            storage_options=spec.data.storage_options,
            person=spec.data.person,
            contributions=None if spec.data.person is None else spec.data.contributions,
            checkpoint=checkpoint,
            weight=spec.data.weight,
            where=spec.data.where,
        )


@contextlib.contextmanager
def _client(spec: Spec) -> Iterator[Client | None]:
    """A client of the cluster that the spec names, closed afterwards; None if it names none."""
    address = spec.data.cluster
    if address is None:
        yield None
        return
    from distributed import Client

    try:
        client = Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError):
        client = None
    if client is None:
        raise FitplugError(
            f"{spec.path}: [data] cluster = {address!r}: no Dask scheduler answers there; "
            "start one, or correct the address"
        )
    with client:
        yield client


def survey(spec: Spec, plan: Plan) -> None:
    """Show what counting would read and take. Reads no row and writes nothing. Raises DataError."""
    import fitplug_dask

    data = spec.data
    show.survey(
        fitplug_dask.survey(
            spec.source,
            plan,
            storage_options=data.storage_options,
            person=data.person,
            weight=data.weight,
            where=data.where,
        )
    )


def cost(spec: Spec, plan: Plan) -> float:
    """rho for all records of one person together, as it is charged."""
    return costs.rho(plan, spec.data.contributions)


def _check_max_rho(spec: Spec, plan: Plan) -> None:
    most, needed = spec.privacy.max_rho, cost(spec, plan)
    if most is None or needed <= most:
        return
    # Another design may end elsewhere within the tolerance; then a factor rounded up to 4 digits.
    factor = math.sqrt(needed / most) * (1 + spec.design.tolerance)
    digits = 10.0 ** (3 - math.floor(math.log10(factor)))
    relax = math.ceil(factor * digits) / digits
    raise OverBudget(
        f"{spec.path}: the targets cost rho = {format_up(needed)}, more than max_rho = {most:g}; "
        f"multiply every std and moe by {relax:.4g}, or raise max_rho; `fitplug report "
        f"{spec.path}` tells which targets to relax instead",
        requested=needed,
        remaining=most,
    )
