"""`fitplug lost`: what a limit on the records of a person left out, from two releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from fitplug.release import Lost, Release, estimate_lost
from fitplug.structure import listed
from fitplug.workload import check_confidence
from fitplug_cli import show
from fitplug_cli.reporting.numbers import percent


def estimate(kept: Path, whole: Path, expression: str, of: str | None) -> Lost:
    """From two folders. Raises InputError."""
    return estimate_lost(Release.read(kept), Release.read(whole), expression, of=of)


def as_record(lost: Lost, confidence: float) -> dict[str, Any]:
    """Everything, for --json. Raises WorkloadError for the confidence, and InputError."""
    check_confidence(confidence)
    return {
        "confidence": confidence,
        "kept": {"limit": lost.limit, **lost.kept._asdict()},
        "whole": {"limit": lost.whole_limit, **lost.whole._asdict()},
        "lost": {**lost.records._asdict(), "interval": lost.records.interval(confidence)},
        "share": {"value": lost.share, "interval": lost.share_interval(confidence)},
        "left_out_by_one_only": list(lost.apart),
    }


def as_table(lost: Lost, confidence: float) -> None:
    """A table for people. Raises WorkloadError for the confidence, and InputError."""
    low, high = lost.share_interval(confidence)
    table = Table(box=None)
    table.add_column("records")
    for column in ("estimate", "std", "lower", "upper"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, count in (
        (f"with at most {lost.limit} of each person", lost.kept),
        (f"with at most {lost.whole_limit} of each person", lost.whole),
        (f"lost by the limit of {lost.limit}", lost.records),
    ):
        numbers = (count.value, count.std, *count.interval(confidence))
        table.add_row(name, *(f"{number:,.0f}" for number in numbers))
    table.add_row("share of them lost", percent(lost.share), "", percent(low), percent(high))
    show.whole(table)
    show.out.print(f"each interval at {100 * confidence:g}% confidence")
    show.out.print(
        f"what a person has beyond {lost.whole_limit} records is in neither release, unless "
        "nobody has more"
    )
    if lost.apart:
        show.out.print(
            f"the two releases differ in the domain of {listed(list(lost.apart))}: rows that one "
            "leaves out as outside its domain, and the other counts, are in the difference too"
        )
