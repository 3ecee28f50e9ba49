"""What commands print and write: the console, messages, JSON records, and files."""

from __future__ import annotations

from fitplug_cli.output.console import (
    ProgressBar,
    err,
    make_gap_reporter,
    open_progress_bar,
    out,
    print_json,
    print_table,
    set_up_output,
)
from fitplug_cli.output.counts_file import read_counts, write_counts
from fitplug_cli.output.csv_tables import find_formula_warning, neutralise_record
from fitplug_cli.output.estimate_tables import (
    Estimates,
    check_estimates_target,
    print_estimates,
    print_estimates_as_json,
    write_estimates,
)
from fitplug_cli.output.json_records import build_ledger_record, build_plan_record
from fitplug_cli.output.messages import (
    print_charge,
    print_plan,
    print_release,
    print_row_rules,
    print_survey,
    warn_of_formulas,
)
from fitplug_cli.output.release_record import (
    ReleaseFiles,
    check_release_folder,
    list_versions,
    read_release_record,
)

__all__ = [
    "Estimates",
    "ProgressBar",
    "ReleaseFiles",
    "build_ledger_record",
    "build_plan_record",
    "check_estimates_target",
    "check_release_folder",
    "err",
    "find_formula_warning",
    "list_versions",
    "make_gap_reporter",
    "neutralise_record",
    "open_progress_bar",
    "out",
    "print_charge",
    "print_estimates",
    "print_estimates_as_json",
    "print_json",
    "print_plan",
    "print_release",
    "print_row_rules",
    "print_survey",
    "print_table",
    "read_counts",
    "read_release_record",
    "set_up_output",
    "warn_of_formulas",
    "write_counts",
    "write_estimates",
]
