"""Review files: what reviewers read of a release, as YAML for the registry and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fitplug.release import markdown

YAML, MARKDOWN = "review.yaml", "review.md"


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, as the registry wants them."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def write(folder: Path, record: Mapping[str, Any]) -> None:
    """Write a review, from `fitplug.release.review`, into a folder. Raises OSError."""
    said = yaml.dump(record, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    (folder / YAML).write_text(said, encoding="utf-8")
    (folder / MARKDOWN).write_text(markdown(record), encoding="utf-8")
