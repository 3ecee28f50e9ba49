"""Sources whose options come together with those of a count or a release."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import fitplug as fp
from fitplug.counts import read_source
from fitplug_dask.releases import release_source

OPTIONS = {field.name for field in fields(fp.Source)} - {"path"}


def split_options(data: Any, options: dict[str, Any]) -> tuple[fp.Source, dict[str, Any]]:
    """The source with those of the options that are of the data, and the other options."""
    of_data = {name: value for name, value in options.items() if name in OPTIONS}
    others = {name: value for name, value in options.items() if name not in OPTIONS}
    return replace(read_source(data), **of_data), others


def count_rows(data: Any, plan: Any, **options: Any) -> fp.Tables:
    source, others = split_options(data, options)
    return fp.count(source, plan, **others)


def preview_rows(data: Any, plan: Any, **options: Any) -> fp.Preview:
    source, others = split_options(data, options)
    return fp.preview(source, plan, **others)


def release_rows(plan: Any, data: Any, folder: Any, **options: Any) -> fp.Release:
    source, others = split_options(data, options)
    return release_source(plan, source, folder, **others)
