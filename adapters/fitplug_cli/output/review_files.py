"""Review files: what reviewers read about a release, as YAML for the registry and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fitplug.release import format_markdown

YAML, MARKDOWN = "review.yaml", "review.md"


class _Dumper(yaml.SafeDumper):
    """It writes texts of several lines as blocks, which the registry wants."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def write_review(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the review of a release into a folder.

    Args:
        folder: The folder.
        record: The review, by `fitplug.release.review`.

    Raises:
        OSError: If a file cannot be written.
    """
    text = yaml.dump(record, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    (folder / YAML).write_text(text, encoding="utf-8")
    (folder / MARKDOWN).write_text(format_markdown(record), encoding="utf-8")
