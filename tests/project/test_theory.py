"""The pages of docs/theory: their formulas are rendered, and the equations that are cited exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import markdown
import pytest

ROOT = next(parent for parent in Path(__file__).parents if (parent / "mkdocs.yml").exists())
PAGES = [*sorted((ROOT / "docs" / "theory").glob("*.md")), ROOT / "docs" / "notation.md"]
SOURCES = [
    *sorted((ROOT / "fitplug").rglob("*.py")),
    *sorted((ROOT / "adapters").rglob("*.py")),
    *PAGES,
]


def load_hook() -> Any:
    """Load the hook of MkDocs, which lies beside the pages and in no package."""
    spec = importlib.util.spec_from_file_location("mathml_hook", ROOT / "docs" / "mathml.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mathml = load_hook()


def render(text: str) -> str:
    formulas = mathml.Formulas()
    formulas.urls = dict.fromkeys(mathml.PAGES, "page/")
    return markdown.Markdown(extensions=["tables", "fenced_code", formulas]).convert(text)


def leave_out_code(text: str) -> str:
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_formula_of_a_page_is_rendered(page: Path) -> None:
    text = leave_out_code(page.read_text(encoding="utf-8"))
    displayed = mathml.DISPLAY.findall(text)
    inline = re.findall(mathml.INLINE, mathml.DISPLAY.sub("", text))
    html = render(text)
    assert html.count("<math") == len(displayed) + len(inline)
    assert "$" not in re.sub(r"<math.*?</math>", "", html, flags=re.DOTALL)
    for formula in re.findall(r"<math.*?</math>", html, re.DOTALL):
        ElementTree.fromstring(formula)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_formula_uses_what_code_hosting_sites_change(page: Path) -> None:
    """Their Markdown drops a backslash before punctuation, and forbids some commands."""
    text = leave_out_code(page.read_text(encoding="utf-8"))
    inline = re.findall(mathml.INLINE, mathml.DISPLAY.sub("", text))
    assert not [formula for formula in inline if re.search(r"\\[^A-Za-z\s]", formula)]
    assert "\\operatorname" not in text


@pytest.mark.parametrize(("letter", "path"), mathml.PAGES.items(), ids=mathml.PAGES)
def test_the_equations_of_a_page_are_numbered_in_order(letter: str, path: str) -> None:
    page = ROOT / "docs" / path
    if page.exists():
        tags = mathml.TAG.findall(page.read_text(encoding="utf-8"))
        assert tags == [f"{letter}{number + 1}" for number in range(len(tags))]
        assert tags


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.relative_to(ROOT)))
def test_every_equation_cited_exists(source: Path) -> None:
    for cited in re.findall(mathml.CITATION, source.read_text(encoding="utf-8")):
        page = ROOT / "docs" / mathml.PAGES[cited[0]]
        if page.exists():
            assert cited in mathml.TAG.findall(page.read_text(encoding="utf-8")), cited


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f": theory/{page.name}\n" in nav for page in PAGES[:-1])


def test_a_tag_becomes_the_number_of_an_equation_and_a_citation_a_link() -> None:
    html = render("By (D3):\n\n$$\na \\le b \\tag{D3}\n$$\n")
    assert '(<a href="page/#D3">D3</a>)' in html
    assert '<div class="equation" id="D3">' in html
    assert '<span class="equation-number">(D3)</span>' in html
    assert "\\tag" not in html


def test_dollars_in_code_and_prices_are_no_formulas() -> None:
    assert "<math" not in render("`$HOME/$USER` costs $5 and $6.\n\n```sh\necho $a $b\n```\n")


@pytest.mark.parametrize("formula", [r"\unknown{x}", r"\frac{a", r"a & b"])
def test_a_formula_that_cannot_be_rendered_is_an_error(formula: str) -> None:
    with pytest.raises(mathml.FormulaError, match=re.escape(repr(formula)[1:-1])):
        mathml.to_mathml(formula, "inline")
