"""Integers have the types that also work where NumPy's default integer has 32 bits."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.helpers.places import ROOT, parse


@pytest.mark.skipif(sys.platform == "win32", reason="C's long has 32 bits on Windows")
@pytest.mark.slow
def test_plans_are_designed_where_int64_is_not_the_default_integer():
    """One plan of each structure; see the module that is run."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.helpers.two_integer_types"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == ""


def test_the_core_names_no_integer_type_whose_size_differs_between_machines():
    """`int`, `np.int_` and `np.long` have 64 bits on some machines, and 32 bits on others."""
    for path in sorted((ROOT / "fitplug").rglob("*.py")):
        for node in ast.walk(parse(path)):
            given: list[ast.expr] = []
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                given = [node]
            elif isinstance(node, ast.keyword) and node.arg == "dtype":
                given = [node.value]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "astype":
                given = node.args[:1]
            unsized = {"int", "np.int_", "np.uint", "np.long", "np.ulong"} & set(
                map(ast.unparse, given)
            )
            assert not unsized, f"{path} has {unsized}: name a type with its size, or np.intp"
