"""Folders of the project that tests read, and what its modules import."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@cache
def list_imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """List the imports of a module, also those in its functions."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
