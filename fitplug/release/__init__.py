"""Releases: noisy answers, combinations of them, tables and folders."""

from fitplug.release.about import About
from fitplug.release.adjusted import Adjusted
from fitplug.release.answer_parts import (
    AnswersPart,
    Stride,
    WrittenPart,
    describe_place,
    find_answers_part,
    name_part,
    write_answers_part,
)
from fitplug.release.answers_file import compute_answers_digest, read_answers, write_answers
from fitplug.release.combination import estimate_each
from fitplug.release.combined_numbers import Approximation, Combination, Combinations, Ratio
from fitplug.release.file_names import ANSWERS, PLAN, name_files
from fitplug.release.folder import TableFiles, complete_folder, read_folder_digest
from fitplug.release.linear_combinations import read_combination
from fitplug.release.parted_answers import PartedAnswers, read_manifest, write_manifest
from fitplug.release.parted_folder import (
    complete_parted_folder,
    publish_parted_folder,
    read_charge,
    read_parted_digest,
    read_parted_folder,
)
from fitplug.release.partial_release import PartialRelease
from fitplug.release.period_files import (
    PeriodAnswers,
    check_period_tables,
    complete_period_folder,
    join_periods,
    read_period_answers,
    write_period_answers,
)
from fitplug.release.population import Limited, describe_planned_population
from fitplug.release.records_lost import Lost, estimate_lost
from fitplug.release.release import Release
from fitplug.release.review_markdown import format_markdown
from fitplug.release.reviews import review
from fitplug.release.table_parts import (
    TablePart,
    TableSlice,
    cut_table,
    number_outputs,
    write_table_part,
)
from fitplug.release.tables import MEASURES, RESULT_COLUMNS, check_names, choose_intervals
from fitplug.release.versions import list_core_versions

__all__ = [
    "ANSWERS",
    "MEASURES",
    "PLAN",
    "RESULT_COLUMNS",
    "About",
    "Adjusted",
    "AnswersPart",
    "Approximation",
    "Combination",
    "Combinations",
    "Limited",
    "Lost",
    "PartedAnswers",
    "PartialRelease",
    "PeriodAnswers",
    "Ratio",
    "Release",
    "Stride",
    "TableFiles",
    "TablePart",
    "TableSlice",
    "WrittenPart",
    "check_names",
    "check_period_tables",
    "choose_intervals",
    "complete_folder",
    "complete_parted_folder",
    "complete_period_folder",
    "compute_answers_digest",
    "cut_table",
    "describe_place",
    "describe_planned_population",
    "estimate_each",
    "estimate_lost",
    "find_answers_part",
    "format_markdown",
    "join_periods",
    "list_core_versions",
    "name_files",
    "name_part",
    "number_outputs",
    "publish_parted_folder",
    "read_answers",
    "read_charge",
    "read_combination",
    "read_folder_digest",
    "read_manifest",
    "read_parted_digest",
    "read_parted_folder",
    "read_period_answers",
    "review",
    "write_answers",
    "write_answers_part",
    "write_manifest",
    "write_period_answers",
    "write_table_part",
]
