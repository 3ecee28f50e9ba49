"""Public files that a spec or a command names: codebooks, trees, crosswalks, targets, expressions.

Someone may name the confidential data by mistake, so errors give the place in a file and never
quote its content.
"""

from __future__ import annotations

from fitplug_cli.inputs.attributes_from_files import read_domain
from fitplug_cli.inputs.code_files import PARQUET_SUFFIXES, CodeFile
from fitplug_cli.inputs.codebooks import Codebook, check_files_are_public, match_rows, read_codebook
from fitplug_cli.inputs.crosswalks import CROSSWALK_KEY, Regions, build_region_rows
from fitplug_cli.inputs.expressions import (
    NamedExpression,
    RegionOptions,
    collect_expressions,
    find_regions,
    read_region_options,
)
from fitplug_cli.inputs.target_files import TARGETS_KEY, read_targets

__all__ = [
    "CROSSWALK_KEY",
    "PARQUET_SUFFIXES",
    "TARGETS_KEY",
    "CodeFile",
    "Codebook",
    "NamedExpression",
    "RegionOptions",
    "Regions",
    "build_region_rows",
    "check_files_are_public",
    "collect_expressions",
    "find_regions",
    "match_rows",
    "read_codebook",
    "read_domain",
    "read_region_options",
    "read_targets",
]
