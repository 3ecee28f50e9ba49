"""Test modules stand alone: what several of them share is in tests/helpers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.places import ROOT, list_imports

TESTS = ROOT / "tests"


def imported_modules(path: Path) -> Iterator[str]:
    """Yield every module or name that a file imports, as an absolute dotted path."""
    package = path.relative_to(ROOT).parent.parts
    for node in list_imports(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*parent, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def is_test_module(module: str) -> bool:
    return any(step.startswith("test_") for step in module.split("."))


def test_no_test_module_is_imported() -> None:
    found = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in TESTS.rglob("*.py")
        for module in imported_modules(path)
        if module.split(".")[0] == "tests" and is_test_module(module)
    }
    assert not found


def test_all_tests_are_in_the_folder_of_a_room() -> None:
    assert not list(TESTS.glob("test_*.py"))
    assert not list((TESTS / "helpers").rglob("test_*.py"))
    for path in TESTS.rglob("test_*.py"):
        assert (path.parent / "__init__.py").exists(), path
