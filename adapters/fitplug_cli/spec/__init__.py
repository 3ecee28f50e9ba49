"""Spec files: TOML files that mirror the Python interface, read and checked."""

from __future__ import annotations

from fitplug_cli.spec.errors import UNDECIDED, SpecError, read_document
from fitplug_cli.spec.loading import (
    Spec,
    build_spec,
    build_workload,
    load_spec,
    name_place,
)
from fitplug_cli.spec.retargeting import FACTOR, has_many_targets, replace_target, rewrite_spec
from fitplug_cli.spec.sections import DataSection, Document

__all__ = [
    "FACTOR",
    "UNDECIDED",
    "DataSection",
    "Document",
    "Spec",
    "SpecError",
    "build_spec",
    "build_workload",
    "has_many_targets",
    "load_spec",
    "name_place",
    "read_document",
    "replace_target",
    "rewrite_spec",
]
