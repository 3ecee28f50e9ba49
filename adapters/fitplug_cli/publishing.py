"""Publishing: a release that is charged, drawn and put into its folder exactly once, and what is
asked of it on the command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitplug.counts import Tables
from fitplug.display import format_up
from fitplug.errors import LedgerError, OverBudget, TablesError
from fitplug.ledger import Ledger, Which
from fitplug.plan import Plan
from fitplug.release import Release, review
from fitplug.structure import listed
from fitplug_cli import output, records, show
from fitplug_cli.spec import Spec, SpecError
from fitplug_cli.steps import cost, open_ledger
from fitplug_opendp.counted_rows import CountedRows
from fitplug_opendp.input_checks import check_limit, check_tables
from fitplug_opendp.publication import Publication
from fitplug_opendp.release_request import ReleaseRequest

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


def prepare(spec: Spec, plan: Plan, charge: Charging) -> Publication:
    """How far the release has come, after refusing what can be refused before rows are read.

    Charges nothing, and begins no ledger. Raises OverBudget, AlreadyReleased, LedgerError,
    InputError.
    """
    begun = spec.ledger is None or spec.resolve(spec.ledger.path).exists()
    if not begun:
        _check_first_charge(spec, plan, charge)
    return _publication(spec, plan, charge, open_ledger(spec) if begun else None)


def _publication(spec: Spec, plan: Plan, charge: Charging, ledger: Ledger | None) -> Publication:
    return Publication.prepare(
        ReleaseRequest(
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
    )


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
    plan = asked.request.plan
    if tables is not None:
        _check_counts(spec, plan, tables, origin)
    if asked.request.ledger is None and spec.ledger is not None:
        asked = _publication(spec, plan, charge, open_ledger(spec))
    ledger = asked.request.ledger
    files = output.ReleaseFiles(
        spec.output.confidence,
        spec.privacy.delta,
        lambda drawn: _reviewed(spec, drawn, ledger),
        spec.output.spreadsheet_safe,
    )
    with show.bar("draw") as bar:
        made = asked.publish(
            tables,
            rows=_understood(spec),
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


def _understood(spec: Spec) -> CountedRows:
    """Which rows the spec releases."""
    return CountedRows(spec.data.rows, "declared" if spec.data.person is None else "enforced")


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


def _check_first_charge(spec: Spec, plan: Plan, charge: Charging) -> None:
    """Refuse what a ledger that is not begun yet would refuse. Raises OverBudget, LedgerError."""
    assert spec.ledger is not None
    needed, total = cost(spec, plan), spec.ledger.total
    if charge.within is not None:
        path = spec.resolve(spec.ledger.path)
        raise LedgerError(f"the ledger {path} does not exist yet: leave --within out")
    if needed > total:
        raise OverBudget(
            f"{spec.path}: the release costs rho = {format_up(needed)}, more than the whole "
            f"budget, [ledger] {total:g}; relax the targets, `fitplug report {spec.path}` tells which",
            requested=needed,
            remaining=total,
        )
