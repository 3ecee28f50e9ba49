"""`fitplug explore`: a local page on which targets are agreed before any data are read."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from fitplug.display import format_delta, format_std_range, format_up
from fitplug.errors import InputError
from fitplug.files import LocalPlace
from fitplug.plan import Plan, describe_gap, design as design_plan, price_groups
from fitplug.workload import DEFAULT_CONFIDENCE, Workload, make_bound_workload
from fitplug_cli.commands.budgets import open_ledger
from fitplug_cli.files import PUBLIC, check_target, convert_write_errors
from fitplug_cli.inputs import TARGETS_KEY
from fitplug_cli.options import SpecArgument
from fitplug_cli.render import make_gap_reporter
from fitplug_cli.render.facts import collect_facts
from fitplug_cli.render.json_records import compute_rho
from fitplug_cli.spec import (
    FACTOR,
    Document,
    Spec,
    build_spec,
    build_workload,
    has_many_targets,
    load_spec,
    read_document,
    replace_target,
    rewrite_spec,
)
from fitplug_explore import (
    AlreadyExists,
    Budget,
    Group,
    GroupOutcome,
    Outcome,
    Report,
    Session,
    Target,
    explore as serve,
)


def explore(
    spec_file: SpecArgument,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Port on 127.0.0.1. [default: a free port]",
            show_default=False,
        ),
    ] = 0,
    no_browser: Annotated[
        bool,
        typer.Option("--no-browser", help="Print the URL of the page, but do not open a browser."),
    ] = False,
) -> None:
    """Change targets on a local web page that shows their privacy cost. No data is read."""
    document = read_document(spec_file)
    spec = build_spec(spec_file, document)

    def announce(url: str) -> None:
        print(f"Open {url}\nPress Ctrl-C to stop.", flush=True)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends the page as Ctrl-C does
    session = _open_session(spec, document)
    serve(session, port=port, announce=announce, opens_browser=not no_browser)


def _open_session(spec: Spec, document: Document) -> Session:
    workload, privacy = spec.workload, spec.privacy
    groups = tuple(
        Group(name, queries, quantity, described, _read_target(entry))
        for name, queries, quantity, described, entry in zip(
            workload.names,
            workload.groups.sizes.tolist(),
            workload.groups.list_quantities(),
            workload.groups.describe_targets(),
            document.query,
            strict=True,
        )
    )

    def write(name: str, targets: Sequence[Target], may_replace: bool) -> Sequence[str]:
        changes = [
            None if new == group.target else _describe_change(new)
            for group, new in zip(groups, targets, strict=True)
        ]
        return _write_spec(spec.path, name, changes, may_replace=may_replace)

    return Session(
        name=spec.path.name,
        suggested=_suggest_name(spec.path),
        unit=str(spec.unit),
        delta=format_delta(privacy.delta),
        spend=None if privacy.rho is None else float(privacy.rho),
        max_rho=None if privacy.max_rho is None else float(privacy.max_rho),
        groups=groups,
        read_budget=lambda: _read_budget(spec),
        design=SpecDesigner(spec, document).design,
        write=write,
    )


def _read_target(entry: Mapping[str, Any]) -> Target:
    """Read the target of a [[query]] table."""
    if has_many_targets(entry):
        return Target("factor", 1.0)
    if "moe" in entry:
        confidence = entry.get("confidence", DEFAULT_CONFIDENCE)
        return Target("moe", entry["moe"], confidence, entry.get("simultaneous", False))
    kind: Literal["std", "variance"] = "std" if "std" in entry else "variance"
    return Target(kind, entry[kind])


def _describe_change(target: Target) -> dict[str, Any]:
    """Describe a target for `replace_target`."""
    if target.kind == "factor":
        return {FACTOR: target.value}
    if target.confidence is None:
        return {target.kind: target.value}
    together = {"simultaneous": True} if target.simultaneous else {}
    return {"moe": target.value, "confidence": target.confidence, **together}


def _read_budget(spec: Spec) -> Budget | str:
    ledger = open_ledger(spec)
    if ledger is None:
        return "The spec has no ledger."
    if ledger.unit not in (None, spec.unit):
        return f"The ledger is for another unit of privacy: {ledger.unit}."
    return Budget(ledger.total, ledger.spent, ledger.remaining)


class SpecDesigner:
    """Designs plans for a spec with other targets. It is pickled, and remembers its last plan.

    The targets decide the cost, even if the spec spends a given rho. The profile is not refined,
    which takes time and does not change the least rho.
    """

    def __init__(self, spec: Spec, document: Document) -> None:
        self._folder, self._document = spec.path.parent, document
        self._domain, self._unit, self._delta = spec.workload.domain, spec.unit, spec.privacy.delta
        self._last: Plan | None = None

    def design(self, targets: Sequence[Target], report: Report) -> Outcome:
        """Design a plan; see `fitplug_explore.Session.design`."""
        options = self._document.design
        workload = self._build_workload(targets)
        report(between=self._bound_rho(workload))
        plan = design_plan(
            workload,
            unit=self._unit,
            **{**options.model_dump(), "refine": False},
            progress=make_gap_reporter(lambda share, _: report(share=share), options.tolerance),
        )
        self._last = plan
        return _describe_outcome(plan, self._delta)

    def _build_workload(self, targets: Sequence[Target]) -> Workload:
        changes = [_describe_change(target) for target in targets]
        entries = [
            replace_target(entry, change)
            for entry, change in zip(self._document.query, changes, strict=True)
        ]
        document = self._document.model_copy(update={"query": entries})
        workload = build_workload(self._folder, document, self._domain)
        factors = np.array(
            [
                change.get(FACTOR, 1.0) if TARGETS_KEY in entry else 1.0
                for entry, change in zip(entries, changes, strict=True)
            ]
        )
        return make_bound_workload(self._domain, workload.groups.rescale(factors**2))

    def _bound_rho(self, workload: Workload) -> tuple[float, float] | None:
        """Bound the least rho from the last plan, without a design.

        The lower bound is (P1) of docs/theory/prices.md. For the upper one, the noise of the last
        plan is scaled until it meets all targets.
        """
        last = self._last
        if last is None or last.objective.weight:
            return None
        starts, earlier = last.workload.groups.value_starts[:-1], last.workload.groups.variances
        factors = workload.groups.variances / earlier
        relaxed = np.maximum.reduceat(factors, starts)
        prices = np.array(list(price_groups(last).values()))
        return last.rho_lower_bound / float(prices @ relaxed), last.rho / float(factors.min())


def _describe_outcome(plan: Plan, delta: float) -> Outcome:
    variances, starts = plan.workload.groups.variances, plan.workload.groups.value_starts[:-1]
    allowed = np.sqrt(np.maximum.reduceat(variances, starts)).tolist()
    return Outcome(
        rho=compute_rho(plan),
        epsilon=format_up(plan.epsilon(delta)),
        gap=f"{describe_gap(plan)}, proven".capitalize(),
        groups=tuple(
            GroupOutcome(
                std,
                format_std_range(group.smallest_std, group.largest_std),
                group.std_ratio,
                group.binding,
                group.price,
                group.saves,
            )
            for std, group in zip(allowed, collect_facts(plan, compare=False).groups, strict=True)
        ),
    )


def _suggest_name(path: Path) -> str:
    """Suggest the name of a spec beside this one that does not exist."""
    names = (f"{path.stem}-{number}.toml" for number in count(2))
    return next(name for name in names if not (path.parent / name).exists())


def _write_spec(
    path: Path, name: str, changes: Sequence[Mapping[str, Any] | None], *, may_replace: bool
) -> Sequence[str]:
    """Write a spec with other targets beside a spec, and return the names of the new files.

    Raises:
        AlreadyExists: If a file exists, and `may_replace` is False.
        InputError: If the name is not that of a new spec in the folder of `path`.
        WriteError: If a file cannot be written.
    """
    if not re.fullmatch(r"[^\W_][\w. -]*\.toml", name):
        raise InputError(
            "the file name must end in .toml and contain only letters, digits, '-' and '_', not "
            f"{name!r}"
        )
    folder = path.resolve().parent
    written = rewrite_spec(path, name, changes)
    for file in written:
        target = folder / file
        if target.is_symlink() or (target.exists() and not target.is_file()):
            raise InputError(f"{file} is not a regular file. Choose another name.")
        if target.exists() and target.samefile(path):
            raise InputError(f"{file} is the spec that this page shows. Choose another name.")
    existing = [file for file in written if (folder / file).exists()]
    if existing and not may_replace:
        verb = "exists" if len(existing) == 1 else "exist"
        raise AlreadyExists(
            f"{' and '.join(existing)} already {verb}. Choose another name, or replace them."
        )
    if name in existing:
        check_target(folder / name, load_spec)
    place = LocalPlace(folder, PUBLIC)
    with convert_write_errors(folder / name):
        for file, text in written.items():
            content = text.encode()
            if may_replace:
                place.replace(file, content)
            elif not place.create(file, content):
                raise AlreadyExists(f"{file} already exists. Choose another name, or replace it.")
    return list(written)
