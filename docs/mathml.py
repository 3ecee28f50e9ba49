"""Render the formulas of the documentation as MathML, which browsers draw without a script.

MkDocs runs this file as a hook. A formula between single dollars stands in a line of text. A
formula between double dollars stands on lines of its own and may end with a tag, the number of the
equation. A number in parentheses, such as (D3), becomes a link to the equation with that tag; its
letter names the page.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

PAGES = {
    "D": "theory/dual.md",
    "R": "theory/refinement.md",
    "S": "theory/symmetry.md",
    "T": "theory/trees.md",
    "C": "theory/chains.md",
    "N": "theory/persons.md",
    "F": "theory/product-family.md",
    "B": "theory/product-bound.md",
    "M": "theory/integer-mechanism.md",
    "P": "theory/prices.md",
    "Z": "theory/privacy.md",
    "E": "theory/post-processing.md",
    "U": "theory/units.md",
    "L": "theory/series.md",
    "Y": "theory/measures.md",
}
"""The page of the equations whose numbers begin with a letter."""

DISPLAY = re.compile(r"^([ ]*)\$\$(.+?)\$\$[ ]*$", re.DOTALL | re.MULTILINE)
INLINE = r"(?<![\\$\w])\$(?=[^\s$])((?:[^$\\]|\\.)+?)(?<!\s)\$(?![\d$])"
TAG = re.compile(r"\\tag\{(\w+)\}")
WIDE = 20
"""Formulas with more symbols may be wider than a telephone, and scroll there."""
CITATION = r"\(([DRSTCNFBMPZEULY]\d+)\)"

_OPERATOR = re.compile(r"\\mathrm\{([A-Za-z]{2,})\}")
_IDENTIFIER = re.compile(r"<mi>(&#x[0-9A-F]+;|[^<&])</mi>")
_FUNCTION = re.compile(r"<m[io]>([A-Za-z]{2,})</m[io]>(<mo[^>]*>&#x00028;)?")
_KEPT = "\N{INFINITY}\N{PRIME}\N{PARTIAL DIFFERENTIAL}\N{NABLA}\N{HORIZONTAL ELLIPSIS}"


class FormulaError(ValueError):
    """A formula holds a command that is not known."""


def to_mathml(latex: str, display: str) -> str:
    """Convert a formula.

    Args:
        latex: The formula, without its dollars and its tag.
        display: "inline" or "block".

    Returns:
        A `math` element.

    Raises:
        FormulaError: A command is not known, or the braces do not match.
    """
    braces = re.findall(r"(?<!\\)[{}]", latex)
    if braces.count("{") != braces.count("}"):
        raise FormulaError(f"{latex!r} has braces that do not match")
    # The converter knows this environment by its other name.
    text = latex.strip().replace("{aligned}", "{align*}")
    text = _OPERATOR.sub(r"\\operatorname{\1}", text)
    try:
        found = _IDENTIFIER.sub(_mark_operator, convert(text, display=display))
        found = _FUNCTION.sub(_space_function, found)
        root = ElementTree.fromstring(found)
    except Exception as error:  # the converter and the parser have errors of many kinds
        raise FormulaError(f"{latex!r} cannot be converted: {error}") from error
    if any("\\" in (element.text or "") for element in root.iter()):
        raise FormulaError(f"{latex!r} holds a command that is not known")
    return found


def _mark_operator(match: re.Match[str]) -> str:
    """Mark a symbol that is neither a letter nor a digit as an operator, so that it gets space."""
    symbol = html.unescape(match[1])
    if unicodedata.category(symbol)[0] in "SP" and symbol not in _KEPT:
        return f"<mo>{match[1]}</mo>"
    return match[0]


def _space_function(match: re.Match[str]) -> str:
    """Put a thin space around the name of a function, but none before a parenthesis."""
    after = "0" if match[2] else "0.17em"
    return f'<mo lspace="0.17em" rspace="{after}">{match[1]}</mo>{match[2] or ""}'


class _Displayed(Preprocessor):
    """Put formulas between double dollars aside, as the text around them is read."""

    def run(self, lines: list[str]) -> list[str]:
        return DISPLAY.sub(self._store, "\n".join(lines)).split("\n")

    def _store(self, match: re.Match[str]) -> str:
        indent, latex = match[1], match[2]
        tags = TAG.findall(latex)
        formula = to_mathml(TAG.sub("", latex), "block")
        name = f' id="{tags[0]}"' if tags else ""
        number = f'<span class="equation-number">({tags[0]})</span>' if tags else ""
        block = f'<div class="equation"{name}><div>{formula}</div>{number}</div>'
        return f"\n{indent}{self.md.htmlStash.store(block)}\n"


class _Inline(InlineProcessor):
    """Formulas between single dollars."""

    def handleMatch(  # type: ignore[override]  # noqa: N802
        self, m: re.Match[str], data: str
    ) -> tuple[str, int, int]:
        formula = to_mathml(m[1], "inline")
        if len(html.unescape(re.sub(r"<[^>]+>", "", formula))) > WIDE:
            formula = f'<span class="wide-formula">{formula}</span>'
        return self.md.htmlStash.store(formula), m.start(0), m.end(0)


class _Citation(InlineProcessor):
    """Numbers of equations, as links."""

    def __init__(self, md: Markdown, formulas: Formulas) -> None:
        super().__init__(CITATION, md)
        self._formulas = formulas

    def handleMatch(  # type: ignore[override]  # noqa: N802
        self, m: re.Match[str], data: str
    ) -> tuple[str | None, int | None, int | None]:
        url = self._formulas.urls.get(m[1][0])
        if url is None:
            return None, None, None
        link = f'(<a href="{html.escape(url)}#{m[1]}">{m[1]}</a>)'
        return self.md.htmlStash.store(link), m.start(0), m.end(0)


class Formulas(Extension):
    """The extension of Markdown that renders formulas.

    Attributes:
        urls: For each letter of equations, the address of its page relative to the page that is
            being rendered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.urls: dict[str, str] = {}

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Register the parts: after fenced code is put aside, and before backslashes are read."""
        md.preprocessors.register(_Displayed(md), "displayed formulas", 24)
        md.inlinePatterns.register(_Inline(INLINE, md), "formulas", 185)
        md.inlinePatterns.register(_Citation(md, self), "equation numbers", 184)


_FORMULAS = Formulas()


def on_config(config: Any) -> Any:
    """Add the extension; MkDocs calls this once."""
    if _FORMULAS not in config.markdown_extensions:
        config.markdown_extensions.append(_FORMULAS)
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Note where the pages of the equations are, seen from this page."""
    found = {letter: files.get_file_from_path(path) for letter, path in PAGES.items()}
    _FORMULAS.urls = {
        letter: file.url_relative_to(page.file)
        for letter, file in found.items()
        if file is not None
    }
    return markdown
