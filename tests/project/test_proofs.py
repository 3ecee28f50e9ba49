"""The proof documents: their pseudocode is the code, and what they refer to exists.

Docstrings, types, imports and the texts of errors are left out of the pseudocode. All else is
compared, so a change of the code that is not made in the proof fails here.
"""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fitplug.counts.consistency import MAX_SHARES
from fitplug.domain.measure import MOST_SHARES
from fitplug.workload import units
from tests.helpers.places import ROOT

PROOFS = ROOT / "docs" / "proofs"
LISTINGS = sorted((PROOFS / "pseudocode").glob("*.py"))
DOCUMENTS = [path for path in sorted(PROOFS.glob("*.tex")) if path.stem != "preamble"]


class Reduction(ast.NodeTransformer):
    """Leaves out what pseudocode does not show."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        node.body = [one for one in node.body if not is_left_out(one)]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        assert node.value is not None
        return ast.Assign(targets=[node.target], value=node.value, lineno=0)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        assert isinstance(node.exc, ast.Call)
        node.cause = None
        node.exc = ast.Call(func=node.exc.func, args=[ast.Constant(...)], keywords=[])
        return node


def is_left_out(node: ast.stmt) -> bool:
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or isinstance(node, (ast.Import, ast.ImportFrom))


def reduce_code(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(Reduction().visit(node)))


def name_definitions(nodes: list[ast.stmt], within: str = "") -> dict[str, ast.stmt]:
    """The functions, methods ("Class.method") and constants of a module by their names."""
    found: dict[str, ast.stmt] = {}
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            found |= name_definitions(node.body, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            found[within + node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            found[within + ast.unparse(target)] = node
    return found


class Quoted(NamedTuple):
    listing: str
    module: str
    name: str
    node: ast.stmt


def list_quoted() -> Iterator[Quoted]:
    for path in LISTINGS:
        _, *parts = re.split(r"^# ([\w.]+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for module, text in zip(parts[::2], parts[1::2], strict=True):
            for name, node in name_definitions(ast.parse(text).body).items():
                yield Quoted(path.stem, module, name, node)


QUOTED = list(list_quoted())


@pytest.mark.parametrize("quoted", QUOTED, ids=lambda q: f"{q.listing}-{q.module}.{q.name}")
def test_pseudocode_is_the_code(quoted: Quoted) -> None:
    module: Any = importlib.import_module(quoted.module)
    source = Path(module.__file__).read_text(encoding="utf-8")
    code = name_definitions(ast.parse(source).body)[quoted.name]
    message = f"{quoted.module} has changed: read the proof again, and change its pseudocode"
    assert reduce_code(code) == reduce_code(quoted.node), message


def test_what_is_proven_is_quoted() -> None:
    """The comparison finds what it compares, also if the comments that name modules change."""
    names = {(quoted.module, quoted.name) for quoted in QUOTED}
    for module, name in (
        ("fitplug_opendp.measurement", "make_fitness_for_use"),
        ("fitplug_opendp.lazyframes", "make_tables"),
        ("fitplug_opendp.gaussian", "upper_sensitivity"),
        ("fitplug.families.base.strategy", "IntegerStrategy.compute_cost"),
        ("fitplug.families.base.strategy", "IntegerStrategy.answer_exactly"),
        ("fitplug_dask.persons.selection", "Selection.select_rows"),
    ):
        assert (module, name) in names
    assert len(QUOTED) > 50


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if d < 0:\n  raise A('x')", "if d <= 0:\n  raise A('x')"),
        ("check(a)\nrun(a)", "run(a)\ncheck(a)"),
        ("raise A('x')", "raise B('x')"),
        ("return f(a)", "return f(a, 1)"),
    ],
)
def test_a_change_is_noticed(before: str, after: str) -> None:
    first, second = (f"def f(a, d):\n{textwrap.indent(body, '  ')}" for body in (before, after))
    assert reduce_code(ast.parse(first)) != reduce_code(ast.parse(second))


def test_messages_and_types_are_not_compared() -> None:
    first = """def f(a: int = 1) -> None:
        'Words.'
        import b
        x: int = 2
        raise A(f'{a}') from None"""
    second = """def f(a=1):
        x = 2
        raise A(...)"""
    assert reduce_code(ast.parse(first)) == reduce_code(ast.parse(second))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_what_a_document_refers_to_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    listings = re.findall(r"\\pseudocode\{(\w+)\}|\{pseudocode/(\w+)\.py\}", text)
    names = [first or second for first, second in listings]
    quoted = "".join((PROOFS / "pseudocode" / f"{n}.py").read_text(encoding="utf-8") for n in names)
    labels = re.findall(r"\\label\{([\w:]+)\}", text + quoted)
    assert len(set(labels)) == len(labels)
    assert set(re.findall(r"\\(?:eq)?ref\{([\w:]+)\}", text)) <= set(labels)
    plain = text.replace("\\_", "_")
    for other in re.findall(r"\\code\{(\w+)\.pdf\}", plain):
        assert (PROOFS / f"{other}.tex").exists(), other
    for folder in re.findall(r"\\code\{((?:docs|tests)/[\w./]+)\}", plain):
        assert (ROOT / folder).exists(), folder
    theory = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs" / "theory").glob("*.md"))
    for page in re.findall(r"\\code\{([\w-]+\.md)\}", plain):
        assert (ROOT / "docs" / "theory" / page).exists(), page
    for tag in re.findall(r"\(([A-Z]\d+)\)", plain):
        assert f"\\tag{{{tag}}}" in theory, tag
    for lemma in re.findall(r"Lemma ([A-Z]\d+)", plain):
        assert f"**Lemma {lemma}.**" in theory, lemma


def test_every_label_of_a_listing_is_used() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    for path in LISTINGS:
        for label in re.findall(r"\\label\{([\w:]+)\}", path.read_text(encoding="utf-8")):
            assert f"\\ref{{{label}}}" in text, f"{path.stem}: {label}"


def test_no_frame_that_polars_holds_has_too_many_shares() -> None:
    """What Lemma "Counting" of make_tables says of numbers."""
    assert units.MOST_SHARES == MOST_SHARES == 2**25
    assert 2**32 * MOST_SHARES <= MAX_SHARES / 2


def test_the_page_leads_to_every_document() -> None:
    page = (ROOT / "docs" / "theory" / "proofs.md").read_text(encoding="utf-8")
    for path in DOCUMENTS:
        assert f"(../proofs/{path.name})" in page, path.name


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_a_document_compiles(document: Path, tmp_path: Path) -> None:
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-output-directory"]
    for _ in range(2):
        done = subprocess.run(
            [*command, tmp_path, document.name], cwd=PROOFS, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    log = (tmp_path / f"{document.stem}.log").read_text(encoding="latin-1")
    assert "undefined" not in log
    assert "multiply defined" not in log
    assert "Overfull" not in log
