"""The pages of the docs, run as they stand: Python, spec files and commands, in the order of the
page and in a folder of its own.

A block of TOML that begins with a comment such as `# visits.toml` is written to that file. A line
of a block of shell that begins with `fitplug` is run, and must succeed.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from fitplug_cli.spec import tomllib
from tests.test_cli import fitplug

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    assert text.count("```") % 2 == 0
    return [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)]


def run_block(block: Block, said: dict[str, object]) -> None:
    if block.language == "python":
        exec(block.text, said)
    elif block.language == "toml":
        tomllib.loads(block.text)
        named = re.match(r"# (\S+\.toml)\n", block.text)
        if named:
            Path(named[1]).write_text(block.text, encoding="utf-8")
    elif block.language == "sh":
        for line in block.text.splitlines():
            if line.startswith("fitplug "):
                ran = fitplug(*shlex.split(line, comments=True)[1:])
                assert ran.code == 0, (line, ran.err)
                said["printed"] = ran.out
    else:
        assert block.language in ("text", "csv", "json", "bibtex"), "name the language of a block"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said: dict[str, object] = {}
    for block in blocks(page):
        run_block(block, said)
    if page.stem == "contributions":
        check_records_lost(said)


def check_records_lost(said: dict[str, object]) -> None:
    """What the page's commands say against the data it made."""
    visits = said["visits"]
    lost = 1 - visits.clip(max=3).sum() / visits.clip(max=40).sum()  # type: ignore[attr-defined]
    printed = str(said["printed"]).replace("\N{NO-BREAK SPACE}", " ")
    found = re.search(r"share of them lost +(\S+) % +(\S+) % +(\S+) %", printed)
    assert found is not None
    share, low, high = (float(part) / 100 for part in found.groups())
    assert abs(lost - share) < 3 * (high - low)
    assert "differ" not in printed
    for limit, release in said["kept"].items():  # type: ignore[attr-defined]
        assert release.rho == pytest.approx(1 / 800)
        value, std = release.combine("total")
        assert abs(value - visits.clip(max=limit).sum()) < 6 * std  # type: ignore[attr-defined]
