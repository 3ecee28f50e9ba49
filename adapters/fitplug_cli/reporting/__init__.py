"""The report of a plan before any data is read: its facts, in a terminal, on a page and as JSON."""

from __future__ import annotations

from fitplug_cli.reporting.facts import Facts, collect_facts
from fitplug_cli.reporting.json_record import build_report_record
from fitplug_cli.reporting.numbers import format_percent
from fitplug_cli.reporting.page import render_page
from fitplug_cli.reporting.terminal import print_relaxation, print_report

__all__ = [
    "Facts",
    "build_report_record",
    "collect_facts",
    "format_percent",
    "print_relaxation",
    "print_report",
    "render_page",
]
