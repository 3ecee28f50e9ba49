"""Spec files: TOML files that mirror the Python interface, read and checked."""

from __future__ import annotations

from fitplug_cli.spec.errors import UNDECIDED, SpecError
from fitplug_cli.spec.loading import Spec, load_spec, name_place
from fitplug_cli.spec.sections import DataSection

__all__ = ["UNDECIDED", "DataSection", "Spec", "SpecError", "load_spec", "name_place"]
