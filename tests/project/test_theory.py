"""The pages of docs/theory: their formulas are rendered, and the equations that are cited exist."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.helpers.places import ROOT

THEORY = ROOT / "docs" / "theory"
PAGES = sorted(THEORY.glob("*.md"))
SOURCES = [
    *sorted((ROOT / "fitplug").rglob("*.py")),
    *sorted((ROOT / "adapters").rglob("*.py")),
    *PAGES,
]
DISPLAY = re.compile(r"^[ ]*\$\$(.+?)\$\$[ ]*$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<![\\$\w])\$(?=[^\s$])((?:[^$\\]|\\.)+?)(?<!\s)\$(?![\d$])")


def load_extension(name: str) -> Any:
    """Load an extension of Sphinx, which is in no package."""
    sys.path.insert(0, str(ROOT / "docs" / "_extensions"))
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[0]


mathml = load_extension("mathml")


def read_formulas(page: Path) -> tuple[list[str], list[str]]:
    """Read the displayed formulas of a page, and those within its lines."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    text = re.sub(r"`[^`\n]*`", "", text)
    return DISPLAY.findall(text), INLINE.findall(DISPLAY.sub("", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_formula_of_a_page_is_rendered(page: Path) -> None:
    displayed, inline = read_formulas(page)
    for formula in displayed:
        ElementTree.fromstring(mathml.to_mathml(mathml.TAG.sub("", formula), "block"))
    for formula in inline:
        ElementTree.fromstring(mathml.to_mathml(formula, "inline"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_formula_uses_what_code_hosting_sites_change(page: Path) -> None:
    """Their Markdown drops a backslash before punctuation, and forbids some commands."""
    displayed, inline = read_formulas(page)
    assert not [formula for formula in inline if re.search(r"\\[^A-Za-z\s]", formula)]
    assert not [formula for formula in displayed + inline if "\\operatorname" in formula]


@pytest.mark.parametrize(("letter", "page"), mathml.PAGES.items(), ids=mathml.PAGES)
def test_the_equations_of_a_page_are_numbered_in_order(letter: str, page: str) -> None:
    tags = mathml.TAG.findall((THEORY / f"{page}.md").read_text(encoding="utf-8"))
    assert tags == [f"{letter}{number + 1}" for number in range(len(tags))]
    assert tags


def test_every_equation_cited_exists() -> None:
    tags = {
        letter: mathml.TAG.findall((THEORY / f"{page}.md").read_text(encoding="utf-8"))
        for letter, page in mathml.PAGES.items()
    }
    for source in SOURCES:
        for cited in mathml.CITATION.findall(source.read_text(encoding="utf-8")):
            assert cited in tags[cited[0]], f"{source}: {cited}"


def test_sphinx_renders_formulas_and_links_equations_and_the_other_site(tmp_path: Path) -> None:
    """A site of two pages, one of them in the folder of the theory, which is not built with it."""
    pages = {
        "index.md": "# One\n\nBy (D3), and [more](theory/dual.md), `$HOME/$USER`.\n",
        "theory/dual.md": "# Two\n",
        "own.md": "# Three\n\n$$\na \\le b \\tag{D3}\n$$\n\n```sh\necho $a $b\n```\n\n$x$\n",
    }
    for name, text in pages.items():
        path = tmp_path / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    settings = (
        f"import sys\nsys.path.insert(0, {str(ROOT / 'docs' / '_extensions')!r})\n"
        'extensions = ["myst_parser", "mathml", "theory_links"]\ntheory_folder = "theory"\n'
        'myst_enable_extensions = ["dollarmath"]\nhtml_math_renderer = "mathml"\n'
        'exclude_patterns = ["theory"]\nsuppress_warnings = ["toc.not_included"]\n'
    )
    (tmp_path / "pages" / "conf.py").write_text(settings, encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-qW", tmp_path / "pages", tmp_path / "site"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    one = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert 'href="theory/dual.html#D3">D3</a>)' in one
    assert 'href="theory/dual.html"' in one
    assert "<math" not in one
    two = (tmp_path / "site" / "own.html").read_text(encoding="utf-8")
    assert '<div class="equation" id="D3">' in two
    assert '<span class="equation-number">(D3)</span>' in two
    assert two.count("<math") == 2
    assert "\\tag" not in two


def test_links_of_the_header_are_relative_to_the_page() -> None:
    context = {
        "theme_external_links": [{"name": "Theory", "url": "theory/index.html"}],
        "pathto": lambda url, resource: f"../{url}",  # of a page in a folder
    }
    load_extension("theory_links").link_from_header(None, "howto/r", "page.html", context, None)
    assert context["theme_external_links"] == [{"name": "Theory", "url": "../theory/index.html"}]


def test_bars_of_a_norm_are_as_high_as_its_line() -> None:
    formula = mathml.to_mathml(r"\lVert X \rVert_1 + \lvert y \rvert^2", "inline")
    bars = [bar for bar in ElementTree.fromstring(formula).iter() if bar.text in ("‖", "|")]
    assert [bar.get("stretchy") for bar in bars] == ["false"] * 4


@pytest.mark.parametrize("formula", [r"\unknown{x}", r"\frac{a", r"a & b"])
def test_a_formula_that_cannot_be_rendered_is_an_error(formula: str) -> None:
    with pytest.raises(mathml.FormulaError, match=re.escape(repr(formula)[1:-1])):
        mathml.to_mathml(formula, "inline")
