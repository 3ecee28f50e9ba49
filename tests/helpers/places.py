"""Folders of the project that tests read, and what its modules import."""

from __future__ import annotations

import ast
import contextlib
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

_IMPORT = re.compile(
    r"^[ \t]*((?:from[ \t]+[\w.]+[ \t]+)?import[ \t]*(?:\((?:[^)#]|#.*)*\)|.*))", re.MULTILINE
)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def list_imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """List the imports of a module, also those in its functions and in programs in its texts.

    A syntax tree of all files takes ten times as long as those of the statements alone.
    """
    found = []
    for statement in _IMPORT.findall(path.read_text(encoding="utf-8")):
        with contextlib.suppress(SyntaxError):  # prose that begins with such a word
            (node,) = ast.parse(statement).body
            if isinstance(node, ast.Import | ast.ImportFrom):
                found.append(node)
    return found
