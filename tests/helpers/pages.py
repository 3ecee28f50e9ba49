"""Pages of Markdown whose blocks are run: what they hold, and what their commands print."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import shlex
import shutil
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fitplug_cli.spec.errors import tomllib
from tests.helpers.command_line import fitplug

SHOWN_ONLY = ("csv", "bibtex", "js", "r")  # test_r_page runs the blocks of R
SPREAD = ("std", "moe")

_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")
_FILE = re.compile(r"# (\S+\.toml)(?:, in place of: (.*))?\n")


class Block(NamedTuple):
    """A fenced block of a page that is no directive of Sphinx, such as {autofunction}."""

    language: str
    text: str
    info: str = ""
    """What follows the language: "exit code 3" of the last command of a block, or "needs" and a
    package that is not among the tools of developers."""


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    fences = re.findall(r"^```.*$", text, re.MULTILINE)
    matches = re.findall(r"^```([\w{}-]+)([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(fences) == 2 * len(matches), "every block names its language"
    return [
        Block(language, text, info.strip())
        for language, info, text in matches
        if not language.startswith("{")
    ]


def run_page(page: Path, *packages: str) -> dict[str, Any]:
    """Run the blocks of a page; gives the names that its Python has, and what was printed last.

    Blocks that need other packages than these are left out.
    """
    said: dict[str, Any] = {"printed": ""}
    previous = Block("", "")
    for block in blocks(page):
        if block.info.startswith("needs ") and block.info.removeprefix("needs ") not in packages:
            pass
        elif block.language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(block.text, said)
            said["printed"] = out.getvalue()
        elif block.language == "toml":
            write_toml(block.text)
        elif block.language == "sh":
            *before, last = block.text.replace(" && ", "\n").splitlines()
            code = int(block.info.removeprefix("exit code ") or 0)
            said["printed"] = "".join(map(run_line, before)) + run_line(last, code)
        elif block.language == "text":
            if previous.language in ("python", "sh"):
                check_printed(block.text, said["printed"])
        elif previous.text.startswith("head "):
            assert block.language == "csv"
            check_table(block.text, said["printed"])
        else:
            assert block.language in SHOWN_ONLY
        previous = block
    return said


def write_toml(text: str) -> None:
    """Write a spec to the file that its first line names, or lines in place of one line of it."""
    named = _FILE.match(text)
    if named is None or not named[2]:
        tomllib.loads(text)
    if named is None:
        return
    path = Path(named[1])
    if named[2]:  # lines that may be wrong: a command after them says so
        before = path.read_text(encoding="utf-8")
        lines = re.findall(rf"^{re.escape(named[2])}(?: +#.*)?\n", before, re.MULTILINE)
        assert len(lines) == 1, (named[2], lines)
        text = before.replace(lines[0], text[named.end() :])
    path.write_text(text, encoding="utf-8")


def run_line(line: str, exit_code: int = 0) -> str:
    """Run a command; gives what it prints."""
    name, *arguments = shlex.split(line, comments=True) or [""]
    if name == "mkdir":
        Path(arguments[0]).mkdir()
    elif name == "cd":
        os.chdir(arguments[0])
    elif name == "cp":
        for source in arguments[:-1]:
            shutil.copy(source, arguments[-1])
    elif name == "head":
        with Path(arguments[1]).open(encoding="utf-8") as file:
            return "".join(islice(file, -int(arguments[0])))
    elif name == "fitplug":
        ran = fitplug(*arguments)
        assert ran.code == exit_code, (line, ran.err)
        return ran.out + ran.err
    return ""


def check_printed(shown: str, printed: str, *, numbers: bool = True) -> None:
    """Every line that is shown was printed, in this order, whatever its spaces.

    All numbers are equal but for their last digits. Below a header with the columns value (or
    estimate) and std, the numbers in these columns and to the right of them are as near as the std
    says, since the noise is another one in each run. With numbers=False none is compared.
    """
    rest = printed.split()
    columns: list[str] = []
    for line in shown.splitlines():
        wanted = line.split()
        pattern = list(map(mask, wanted))
        starts = range(len(rest) - len(wanted) + 1)
        start = next(
            (i for i in starts if list(map(mask, rest[i : i + len(wanted)])) == pattern), None
        )
        assert start is not None, f"{line!r} was not printed: {printed}"
        end = start + len(wanted)
        ours, theirs = read_numbers(wanted), read_numbers(rest[start:end])
        columns = find_columns(wanted) or columns
        if not numbers:
            pass
        elif not columns:
            check_numbers(ours, theirs, line)
        elif len(ours) >= len(columns) and "%" not in line:
            check_estimates(columns, ours[-len(columns) :], theirs[-len(columns) :], line)
        rest = rest[end:]


def find_columns(words: list[str]) -> list[str]:
    """The columns of numbers that a header names, the estimate first; none if it is no header."""
    first = next((word for word in ("value", "estimate") if word in words), None)
    return words[words.index(first) :] if first and "std" in words else []


def check_table(shown: str, printed: str) -> None:
    """A CSV of records is equal, and one of estimates too but for its noise."""
    pages, runs = (list(csv.reader(text.splitlines())) for text in (shown, printed))
    if "estimate" not in runs[0]:
        assert pages == runs
        return
    at = runs[0].index("estimate")
    assert pages[0] == runs[0]
    assert [row[:at] for row in pages] == [row[:at] for row in runs]
    for page, run in zip(pages[1:], runs[1:], strict=True):
        ours, theirs = ([float(cell) for cell in row[at:]] for row in (page, run))
        check_estimates(runs[0][at:], ours, theirs, str(page))


def check_numbers(shown: list[float], printed: list[float], line: str) -> None:
    for ours, theirs in zip(shown, printed, strict=True):
        assert abs(ours - theirs) <= 2e-3 * abs(theirs), (line, ours, theirs)


def check_estimates(
    columns: list[str], shown: list[float], printed: list[float], line: str
) -> None:
    """Two draws of a row: equal spread, and estimates and ends of intervals near each other."""
    std, value = shown[columns.index("std")], shown[0]  # the estimate is the first number
    # The spread of a ratio follows its estimate: of a ratio that is mostly noise, by much.
    of_ratio = 0.2 if abs(value) > 4 * std else 3.0
    for column, ours, theirs in zip(columns, shown, printed, strict=True):
        most = 9 * std
        if column in SPREAD:
            most = (of_ratio if "approximate" in line else 2e-2) * theirs
        elif column == "confidence":
            most = 0.0
        assert abs(ours - theirs) <= most, (line, ours, theirs)


def read_numbers(words: list[str]) -> list[float]:
    """The numbers of a line, but for the gap of a plan: a design may end at another one."""
    compared = [word for before, word in pairwise(["", *words]) if before != "within"]
    numbers = (match[0] for word in compared for match in _NUMBER.finditer(word))
    return [float(number.replace(",", "")) for number in numbers if number.strip(",-")]


def mask(word: str) -> str:
    return _NUMBER.sub("#", word)
