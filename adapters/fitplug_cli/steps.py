"""The steps of a release: check, design, count, draw and write. Each command is some of them."""

from __future__ import annotations

import contextlib
import glob
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitplug.design import design as design_plan
from fitplug.errors import FitplugError, InputError, LedgerError, OverBudget, TablesError
from fitplug.ledger import Ledger
from fitplug.ledgerrules import Which
from fitplug.plan import Plan
from fitplug.planfile import describe, digest
from fitplug.release import Release
from fitplug.review import review
from fitplug.rounding import above, floor_float
from fitplug.structure import listed
from fitplug.tables import Tables
from fitplug_cli import costs, countsfile, output, records, show
from fitplug_cli.files import check_target, replacing
from fitplug_cli.spec import Spec, SpecError
from fitplug_opendp.noisy_release import check_limit, check_tables
from fitplug_opendp.publication import Publication, Understood
from fitplug_opendp.staging import kept_plan

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_SECONDS = 10
_MOST_DIGITS = 19
"""Of the number of an entry."""


@dataclass(frozen=True)
class Charging:
    """How the ledger is charged. key: of the release. within: an earlier charge, to cost nothing.
    again: another draw of a plan that was released. replace: keep an earlier release aside.
    """

    key: str | None = None
    within: Which | None = None
    again: bool = False
    replace: bool = False


def charging(
    spec: Spec, key: str | None, within: str | None, again: bool, replace: bool
) -> Charging:
    """What the options ask; whole numbers for --within are those of entries. Raises SpecError."""
    for option, given in (("--key", key), ("--within", within), ("--again", again or None)):
        if given is not None and spec.ledger is None:
            shown = option if given is True else f"{option} {given!r}"
            raise SpecError(f"{spec.path}: {shown} needs a [ledger]; add one")
    if key is not None and again:
        raise SpecError(
            f"--again is for releases without a key; another draw of the plan beside {key!r} needs "
            "only another --key"
        )
    number = within is not None and within.isdecimal() and len(within) < _MOST_DIGITS
    return Charging(key, int(within) if within is not None and number else within, again, replace)


def check_counts_kept(spec: Spec, charge: Charging) -> None:
    """Raise SpecError for a release within an earlier charge that would count the records anew,
    where counting keeps other records of a person each time, or other rows may be counted.
    """
    if charge.within is None:
        return
    why = "person keeps others each time they are counted" if spec.data.person is not None else None
    if spec.data.rows is not None:
        why = "weight or where may count others"
    if why is not None:
        raise SpecError(
            f"{spec.path}: --within {charge.within!r} needs the same records as that charge, but "
            f"[data] {why}; use `fitplug release --counts` "
            "with the counts file that the charge was released from"
        )


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


def plan_for(spec: Spec, path: Path | None, charge: Charging) -> Plan:
    """The plan from a file, or of the release that is retried, or a new one. Raises as these do."""
    if path is not None:
        return saved_plan(spec, path)
    if spec.ledger is not None and spec.resolve(spec.ledger.path).exists():
        ledger = Ledger(spec.resolve(spec.ledger.path), **spec.ledger.amount)
        kept = kept_plan(ledger, spec.output_dir, charge.key)
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
    return paid and digest(*describe(plan.workload)) == digest(*describe(spec.workload))


def saved_plan(spec: Spec, path: Path) -> Plan:
    """A plan from a file. Raises InputError if it is damaged or was designed for another spec,
    OverBudget if it costs more than max_rho.
    """
    plan = Plan.load(path)
    try:
        plan.verify()
    except InputError as error:
        raise InputError(f"{path}: {error}; design the plan again") from None
    same = digest(*describe(plan.workload)) == digest(*describe(spec.workload))
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
    from fitplug_dask.checkpoint import check_place

    check_place(checkpoint)


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


def prepare(spec: Spec, plan: Plan, charge: Charging) -> Publication:
    """How far the release has come, after refusing what can be refused before rows are read.

    Charges nothing, and begins no ledger. Raises OverBudget, AlreadyReleased, LedgerError,
    InputError.
    """
    begun = spec.ledger is None or spec.resolve(spec.ledger.path).exists()
    if not begun:
        _check_first_charge(spec, plan, charge)
    return _publication(spec, plan, charge, _ledger(spec) if begun else None)


def _publication(spec: Spec, plan: Plan, charge: Charging, ledger: Ledger | None) -> Publication:
    return Publication.prepare(
        plan,
        spec.output_dir,
        contributions=spec.data.contributions,
        ledger=ledger,
        within=charge.within,
        what=f"{spec.path.name}: {listed(spec.workload.names)}",
        key=charge.key,
        again=charge.again,
        replace=charge.replace,
    )


def _ledger(spec: Spec) -> Ledger | None:
    """The ledger of a spec, begun if it does not exist; None if the spec names none."""
    if spec.ledger is None:
        return None
    return Ledger(spec.resolve(spec.ledger.path), **spec.ledger.amount)


def release(
    spec: Spec,
    asked: Publication,
    charge: Charging,
    tables: Tables | None,
    origin: Path | None = None,
) -> dict[str, Any]:
    """Charge, draw and publish, or go on from where a release has come to. Everything that can be
    refused is refused before the charge.

    tables: exact counts, if the release needs them; origin: the file that they come from, for
    errors; None if they were counted just now. Returns what release.json says, where the release
    is, and what the ledger has left.
    """
    plan = asked.mechanism.plan
    if tables is not None:
        _check_counts(spec, plan, tables, origin)
    if asked.ledger is None and spec.ledger is not None:
        asked = _publication(spec, plan, charge, _ledger(spec))
    ledger = asked.ledger
    files = output.ReleaseFiles(
        spec.output.confidence,
        spec.privacy.delta,
        lambda drawn: _reviewed(spec, drawn, ledger),
        spec.output.spreadsheet_safe,
    )
    with show.bar("draw") as bar:
        made = asked.publish(
            tables,
            understood=_understood(spec),
            confidence=spec.output.confidence,
            files=files,
            progress=lambda done, whole: bar.show(done / whole, f"{done:,} of {whole:,}"),
        )
    show.charged(ledger, made.release, asked.state)
    show.released(made, spec.output_dir, asked.state)
    show.formulas(spec.workload, safe=spec.output.spreadsheet_safe)
    return output.record(made.folder) | {
        "found": asked.state,
        "ledger": records.of_ledger(ledger),
    }


def _understood(spec: Spec) -> Understood:
    """Which rows the spec releases."""
    return Understood(spec.data.rows, "declared" if spec.data.person is None else "enforced")


def _check_counts(spec: Spec, plan: Plan, tables: Tables, origin: Path | None) -> None:
    """Raise TablesError, naming where they come from, unless these are the counts that the spec
    asks for.
    """
    try:
        check_limit(tables, spec.data.contributions)
        check_tables(plan, tables)
    except TablesError as error:
        raise TablesError(f"{origin or f'{spec.path}: the data'}: {error}") from None
    if spec.data.person != tables.person:
        asked, made = (
            "not by person" if person is None else f"by the column {person!r}"
            for person in (spec.data.person, tables.person)
        )
        raise TablesError(
            f"{origin}: the rows counted were limited {made}, and {spec.path} limits them {asked}; "
            "count again with this spec"
        )
    if spec.data.rows != tables.rows:
        asked, made = (rows or "each row is one record" for rows in (spec.data.rows, tables.rows))
        raise TablesError(
            f"{origin}: these were counted so: {made}; but {spec.path} says: {asked}; count again "
            "with this spec"
        )


def _reviewed(
    spec: Spec,
    drawn: Release,
    ledger: Ledger | None,
) -> dict[str, Any]:
    """The review of a release that was paid for: a ledger that cannot be read now is left out."""
    keywords: dict[str, Any] = {
        "about": spec.about.about,
        "delta": spec.privacy.delta,
        "versions": output.all_versions(),
    }
    try:
        return review(drawn, ledger=ledger, **keywords)
    except LedgerError:
        return review(drawn, **keywords)


def cost(spec: Spec, plan: Plan) -> float:
    """rho for all records of one person together, as it is charged."""
    return costs.rho(plan, spec.data.contributions)


def _check_first_charge(spec: Spec, plan: Plan, charge: Charging) -> None:
    """Refuse what a ledger that is not begun yet would refuse. Raises OverBudget, LedgerError."""
    assert spec.ledger is not None
    needed, total = cost(spec, plan), spec.ledger.total
    if charge.within is not None:
        path = spec.resolve(spec.ledger.path)
        raise LedgerError(f"the ledger {path} does not exist yet: leave --within out")
    if needed > total:
        raise OverBudget(
            f"{spec.path}: the release costs rho = {above(needed)}, more than the whole budget, "
            f"[ledger] {total:g}; relax the targets, `fitplug report {spec.path}` tells which",
            requested=needed,
            remaining=total,
        )


def _check_max_rho(spec: Spec, plan: Plan) -> None:
    most, needed = spec.privacy.max_rho, cost(spec, plan)
    if most is None or needed <= most:
        return
    # Another design may end elsewhere within the tolerance; then a factor rounded up to 4 digits.
    factor = math.sqrt(needed / most) * (1 + spec.design.tolerance)
    digits = 10.0 ** (3 - math.floor(math.log10(factor)))
    relax = math.ceil(factor * digits) / digits
    raise OverBudget(
        f"{spec.path}: the targets cost rho = {above(needed)}, more than max_rho = {most:g}; "
        f"multiply every std and moe by {relax:.4g}, or raise max_rho; `fitplug report "
        f"{spec.path}` tells which targets to relax instead",
        requested=needed,
        remaining=most,
    )
