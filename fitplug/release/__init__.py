"""Releases: noisy answers, combinations of them, tables and folders."""

from fitplug.release.about import About
from fitplug.release.adjusted import Adjusted
from fitplug.release.answers_file import compute_answers_digest, read_answers, write_answers
from fitplug.release.combination import Combination, Combinations, Ratio, estimate_each
from fitplug.release.file_names import ANSWERS, PLAN, name_files
from fitplug.release.folder import TableFiles, complete_folder, read_folder_digest
from fitplug.release.linear_combinations import read_combination
from fitplug.release.population import Limited, describe_population
from fitplug.release.records_lost import Lost, estimate_lost
from fitplug.release.release import Release
from fitplug.release.review_markdown import format_markdown
from fitplug.release.reviews import review
from fitplug.release.tables import MEASURES, RESULT_COLUMNS, choose_intervals
from fitplug.release.versions import list_core_versions

__all__ = [
    "ANSWERS",
    "MEASURES",
    "PLAN",
    "RESULT_COLUMNS",
    "About",
    "Adjusted",
    "Combination",
    "Combinations",
    "Limited",
    "Lost",
    "Ratio",
    "Release",
    "TableFiles",
    "choose_intervals",
    "complete_folder",
    "compute_answers_digest",
    "describe_population",
    "estimate_each",
    "estimate_lost",
    "format_markdown",
    "list_core_versions",
    "name_files",
    "read_answers",
    "read_combination",
    "read_folder_digest",
    "review",
    "write_answers",
]
