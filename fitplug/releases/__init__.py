"""Releases: noisy answers, combinations of them, tables and folders."""

from fitplug.releases.answer_parts import (
    ANSWER_PARTS,
    AnswersPart,
    PartedAnswers,
    Stride,
    WrittenPart,
    describe_place,
    find_answers_part,
    name_part,
    write_answers_part,
)
from fitplug.releases.combination import estimate_read
from fitplug.releases.combined_numbers import Approximation, Estimate, Estimates, Ratio
from fitplug.releases.coverage import CoverageRow
from fitplug.releases.display import DISPLAY_COLUMNS
from fitplug.releases.display_parts import (
    DISPLAY,
    DisplayParts,
    DisplayRequest,
    check_request,
    choose_method,
    name_display_folder,
    read_display,
    verify_display,
)
from fitplug.releases.display_tables import DisplayTables
from fitplug.releases.folder import (
    RECORD,
    complete_folder,
    open_display,
    read_digest,
    read_folder,
    write_folder,
    write_tables,
)
from fitplug.releases.folder_publication import publish_folder
from fitplug.releases.invariants import Totals
from fitplug.releases.linear_combinations import read_combination
from fitplug.releases.manifest import (
    MANIFEST,
    PLAN,
    Period,
    list_core_versions,
    name_files,
    read_charge,
    read_manifest,
    write_manifest,
    write_parts,
)
from fitplug.releases.noisy_answers import (
    Limited,
    describe_assumption,
    describe_planned_population,
    describe_rows_outside,
    name_population,
)
from fitplug.releases.period_display import (
    check_period_display,
    verify_period_display,
    write_period_display,
)
from fitplug.releases.periods import (
    PartialRelease,
    PeriodAnswers,
    check_period_tables,
    complete_period_folder,
    join_periods,
    read_period_answers,
)
from fitplug.releases.quantiles import (
    Quantile,
    QuantileExpression,
    estimate_quantiles,
    parse_quantile,
)
from fitplug.releases.release import Release
from fitplug.releases.review_texts import About, format_markdown
from fitplug.releases.reviews import review
from fitplug.releases.table_parts import TablePart, write_table_part
from fitplug.releases.tables import (
    MEASURES,
    RESULT_COLUMNS,
    Intervals,
    TableSlice,
    check_names,
    choose_intervals,
    cut_table,
    make_metadata,
    number_outputs,
)
from fitplug.releases.truncation import TruncationLoss, estimate_truncation

__all__ = [
    "ANSWER_PARTS",
    "DISPLAY",
    "DISPLAY_COLUMNS",
    "MANIFEST",
    "MEASURES",
    "PLAN",
    "RECORD",
    "RESULT_COLUMNS",
    "About",
    "AnswersPart",
    "Approximation",
    "CoverageRow",
    "DisplayParts",
    "DisplayRequest",
    "DisplayTables",
    "Estimate",
    "Estimates",
    "Intervals",
    "Limited",
    "PartedAnswers",
    "PartialRelease",
    "Period",
    "PeriodAnswers",
    "Quantile",
    "QuantileExpression",
    "Ratio",
    "Release",
    "Stride",
    "TablePart",
    "TableSlice",
    "Totals",
    "TruncationLoss",
    "WrittenPart",
    "check_names",
    "check_period_display",
    "check_period_tables",
    "check_request",
    "choose_intervals",
    "choose_method",
    "complete_folder",
    "complete_period_folder",
    "cut_table",
    "describe_assumption",
    "describe_place",
    "describe_planned_population",
    "describe_rows_outside",
    "estimate_quantiles",
    "estimate_read",
    "estimate_truncation",
    "find_answers_part",
    "format_markdown",
    "join_periods",
    "list_core_versions",
    "make_metadata",
    "name_display_folder",
    "name_files",
    "name_part",
    "name_population",
    "number_outputs",
    "open_display",
    "parse_quantile",
    "publish_folder",
    "read_charge",
    "read_combination",
    "read_digest",
    "read_display",
    "read_folder",
    "read_manifest",
    "read_period_answers",
    "review",
    "verify_display",
    "verify_period_display",
    "write_answers_part",
    "write_folder",
    "write_manifest",
    "write_parts",
    "write_period_display",
    "write_table_part",
    "write_tables",
]
