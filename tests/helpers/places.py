"""Folders of the project that tests read, and what its modules import."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def list_imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """List the imports of a module, also those in its functions."""
    found, left = [], [*parse(path).body]
    while left:  # only statements: most nodes are expressions, which hold no imports
        node = left.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        for inside in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, inside, ())
    return found
