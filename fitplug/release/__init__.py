"""Releases: noisy answers, combinations of them, tables and folders."""

from fitplug.release.adjusted import Adjusted
from fitplug.release.combination import Combination, Combinations, Ratio, estimate_each
from fitplug.release.folder import (
    ANSWERS,
    PLAN,
    TableFiles,
    answers_digest,
    file_names,
    fill,
    held_digest,
    read_answers,
    versions,
    write_answers,
)
from fitplug.release.linear_combinations import read_combination
from fitplug.release.population import Limited, describe_population
from fitplug.release.records_lost import Lost, estimate_lost
from fitplug.release.release import Release
from fitplug.release.review_markdown import markdown
from fitplug.release.reviews import About, review
from fitplug.release.tables import MEASURES, RESULT_COLUMNS, spread

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
    "answers_digest",
    "describe_population",
    "estimate_each",
    "estimate_lost",
    "file_names",
    "fill",
    "held_digest",
    "markdown",
    "read_answers",
    "read_combination",
    "review",
    "spread",
    "versions",
    "write_answers",
]
