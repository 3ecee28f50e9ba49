"""Pages of Markdown whose blocks are run: what they hold, and what their commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from tests.helpers.command_line import fitplug

_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    fences = re.findall(r"^```.*$", text, re.MULTILINE)
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(fences) == 2 * len(found), "every block names its language"
    return [Block(*block) for block in found]


def run_line(line: str) -> str:
    """Run a command; gives what it prints."""
    if not line.startswith("fitplug "):
        return ""
    expected = re.search(r"# exit code (\d)", line)
    ran = fitplug(*shlex.split(line, comments=True)[1:])
    assert ran.code == (int(expected[1]) if expected else 0), (line, ran.err)
    return ran.out + ran.err


def check_printed(shown: str, printed: str) -> None:
    """Every line that is shown was printed, in this order, whatever its numbers and its spaces."""
    rest = words(printed)
    for line in shown.splitlines():
        wanted = words(line)
        places = range(len(rest) - len(wanted) + 1)
        found = next((i for i in places if rest[i : i + len(wanted)] == wanted), None)
        assert found is not None, f"{line!r} was not printed: {printed}"
        rest = rest[found + len(wanted) :]


def words(text: str) -> list[str]:
    return _NUMBER.sub("#", text).split()
