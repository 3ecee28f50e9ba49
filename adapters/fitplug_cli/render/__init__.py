"""What commands print and write: console output, JSON records, reports and files.

Modules with slow imports are not imported here: `estimate_tables`, and `facts`, `terminal` and
`page` of a plan's report.
"""

from __future__ import annotations

from fitplug_cli.render.console import (
    ProgressBar,
    err,
    make_gap_reporter,
    open_progress_bar,
    out,
    print_facts,
    print_json,
    print_table,
    set_up_output,
    warn,
)
from fitplug_cli.render.counts_file import read_counts, write_counts
from fitplug_cli.render.json_records import (
    build_ledger_record,
    build_plan_record,
    build_preview_record,
    read_release_record,
)
from fitplug_cli.render.messages import (
    find_formula_warning,
    print_coverage,
    print_plan,
    print_preview,
    print_release,
    print_row_rules,
    warn_of_release,
)

__all__ = [
    "ProgressBar",
    "build_ledger_record",
    "build_plan_record",
    "build_preview_record",
    "err",
    "find_formula_warning",
    "make_gap_reporter",
    "open_progress_bar",
    "out",
    "print_coverage",
    "print_facts",
    "print_json",
    "print_plan",
    "print_preview",
    "print_release",
    "print_row_rules",
    "print_table",
    "read_counts",
    "read_release_record",
    "set_up_output",
    "warn",
    "warn_of_release",
    "write_counts",
]
