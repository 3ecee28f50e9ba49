"""Releases: noisy answers, combinations of them, tables and folders."""

from fitplug.releases.answer_parts import (
    ANSWER_PARTS as ANSWER_PARTS,
    AnswersPart as AnswersPart,
    PartedAnswers as PartedAnswers,
    Stride as Stride,
    WrittenPart as WrittenPart,
    describe_place as describe_place,
    find_answers_part as find_answers_part,
    name_part as name_part,
    write_answers_part as write_answers_part,
)
from fitplug.releases.combination import estimate_read as estimate_read
from fitplug.releases.combined_numbers import (
    Approximation as Approximation,
    Estimate as Estimate,
    Estimates as Estimates,
    Ratio as Ratio,
    find_ends as find_ends,
    find_moe as find_moe,
)
from fitplug.releases.coverage import CoverageRow as CoverageRow
from fitplug.releases.display import DISPLAY_COLUMNS as DISPLAY_COLUMNS
from fitplug.releases.display_parts import (
    DISPLAY as DISPLAY,
    DisplayParts as DisplayParts,
    DisplayRequest as DisplayRequest,
    check_request as check_request,
    choose_method as choose_method,
    name_display_folder as name_display_folder,
    read_display as read_display,
    verify_display as verify_display,
)
from fitplug.releases.display_tables import DisplayTables as DisplayTables
from fitplug.releases.folder import (
    RECORD as RECORD,
    SERIES_RECORD as SERIES_RECORD,
    complete_folder as complete_folder,
    open_display as open_display,
    read_digest as read_digest,
    read_folder as read_folder,
    write_folder as write_folder,
    write_tables as write_tables,
)
from fitplug.releases.folder_publication import publish_folder as publish_folder
from fitplug.releases.invariants import Totals as Totals
from fitplug.releases.linear_combinations import read_combination as read_combination
from fitplug.releases.manifest import (
    MANIFEST as MANIFEST,
    PLAN as PLAN,
    Period as Period,
    list_core_versions as list_core_versions,
    name_files as name_files,
    read_charge as read_charge,
    read_manifest as read_manifest,
    write_manifest as write_manifest,
    write_parts as write_parts,
)
from fitplug.releases.noisy_answers import (
    Limited as Limited,
    describe_assumption as describe_assumption,
    describe_planned_population as describe_planned_population,
    describe_rows_outside as describe_rows_outside,
    find_parted_tables as find_parted_tables,
    list_parts as list_parts,
    name_population as name_population,
)
from fitplug.releases.period_display import (
    check_period_display as check_period_display,
    verify_period_display as verify_period_display,
    write_period_display as write_period_display,
)
from fitplug.releases.periods import (
    PartialRelease as PartialRelease,
    PeriodAnswers as PeriodAnswers,
    check_period_tables as check_period_tables,
    complete_period_folder as complete_period_folder,
    join_periods as join_periods,
    read_period_answers as read_period_answers,
)
from fitplug.releases.quantiles import (
    Quantile as Quantile,
    QuantileExpression as QuantileExpression,
    estimate_quantiles as estimate_quantiles,
    parse_quantile as parse_quantile,
)
from fitplug.releases.release import Release as Release
from fitplug.releases.review_texts import About as About, format_markdown as format_markdown
from fitplug.releases.reviews import review as review
from fitplug.releases.table_parts import (
    TablePart as TablePart,
    write_table_part as write_table_part,
)
from fitplug.releases.tables import (
    MEASURES as MEASURES,
    RESULT_COLUMNS as RESULT_COLUMNS,
    Intervals as Intervals,
    TableSlice as TableSlice,
    check_names as check_names,
    choose_intervals as choose_intervals,
    cut_table as cut_table,
    make_metadata as make_metadata,
    number_outputs as number_outputs,
)
from fitplug.releases.truncation import (
    TruncationLoss as TruncationLoss,
    estimate_truncation as estimate_truncation,
)
