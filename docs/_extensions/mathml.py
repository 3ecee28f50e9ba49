"""Render formulas as MathML, which browsers draw without a script, and link the equations.

A displayed formula may end with a tag, the number of the equation: `\\tag{D3}`. The text (D3) on
any page becomes a link to it. The letter of the number names the page.
"""

from __future__ import annotations

import html
import posixpath
import re
import unicodedata
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

PAGES = {
    "D": "dual",
    "R": "refinement",
    "S": "symmetry",
    "T": "trees",
    "C": "chains",
    "N": "persons",
    "F": "product-family",
    "B": "product-bound",
    "M": "integer-mechanism",
    "P": "prices",
    "Z": "privacy",
    "E": "post-processing",
    "U": "units",
    "L": "series",
    "Y": "measures",
    "V": "certificate",
}
"""The page of the theory that defines the equations whose numbers begin with a letter."""

TAG = re.compile(r"\\tag\{(\w+)\}")
WIDE = 20
"""Formulas with more symbols may be wider than a telephone, and scroll there."""
CITATION = re.compile(r"\(([DRSTCNFBMPZEULYV]\d+)\)")

_OPERATOR = re.compile(r"\\mathrm\{([A-Za-z]{2,})\}")
_IDENTIFIER = re.compile(r"<mi>(&#x[0-9A-F]+;|[^<&])</mi>")
_FUNCTION = re.compile(r"<m[io]>([A-Za-z]{2,})</m[io]>(<mo[^>]*>&#x00028;)?")
_BAR = re.compile(r'<mo(?: stretchy="false")?>(&#x02016;|&#x0007C;)</mo>')
_TEXT_SYMBOLS = "\N{INFINITY}\N{PRIME}\N{PARTIAL DIFFERENTIAL}\N{NABLA}\N{HORIZONTAL ELLIPSIS}"


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
        mathml = _IDENTIFIER.sub(_mark_operator, convert(text, display=display))
        mathml = _FUNCTION.sub(_space_function, mathml)
        # Browsers would stretch the bars of a norm that has an index, and put spaces around them.
        mathml = _BAR.sub(r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', mathml)
        root = ElementTree.fromstring(mathml)
    except Exception as error:  # the converter and the parser have errors of many kinds
        raise FormulaError(f"{latex!r} cannot be converted: {error}") from error
    if any("\\" in (element.text or "") for element in root.iter()):
        raise FormulaError(f"{latex!r} holds a command that is not known")
    return mathml


def _mark_operator(match: re.Match[str]) -> str:
    """Mark a symbol that is neither a letter nor a digit as an operator, so that it gets space."""
    symbol = html.unescape(match[1])
    if unicodedata.category(symbol)[0] in "SP" and symbol not in _TEXT_SYMBOLS:
        return f"<mo>{match[1]}</mo>"
    return match[0]


def _space_function(match: re.Match[str]) -> str:
    """Put a thin space around the name of a function, but none before a parenthesis."""
    after = "0" if match[2] else "0.17em"
    return f'<mo lspace="0.17em" rspace="{after}">{match[1]}</mo>{match[2] or ""}'


def _render_inline(writer: Any, node: nodes.math) -> None:
    formula = to_mathml(node.astext(), "inline")
    if len(html.unescape(re.sub(r"<[^>]+>", "", formula))) > WIDE:
        formula = f'<span class="wide-formula">{formula}</span>'
    writer.body.append(formula)
    raise nodes.SkipNode


def _render_block(writer: Any, node: nodes.math_block) -> None:
    tags = TAG.findall(node.astext())
    formula = to_mathml(TAG.sub("", node.astext()), "block")
    name = f' id="{tags[0]}"' if tags else ""
    number = f'<span class="equation-number">({tags[0]})</span>' if tags else ""
    writer.body.append(f'<div class="equation"{name}><div>{formula}</div>{number}</div>\n')
    raise nodes.SkipNode


def link_equations(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make links of the numbers of equations; Sphinx calls this for each page."""
    folder = posixpath.relpath(app.config.theory_folder, posixpath.dirname(docname) or ".")
    for text in list(doctree.findall(nodes.Text)):
        if not isinstance(text.parent, (nodes.literal, nodes.literal_block, nodes.reference)):
            parts = list(_split_citations(text.astext(), folder))
            if len(parts) > 1:
                text.parent.replace(text, parts)


def _split_citations(text: str, folder: str) -> Iterator[nodes.Node]:
    end = 0
    for match in CITATION.finditer(text):
        yield nodes.Text(text[end : match.start() + 1])
        page = f"{folder}/{PAGES[match[1][0]]}.html"
        yield nodes.reference("", match[1], internal=False, refuri=f"{page}#{match[1]}")
        end = match.end() - 1
    yield nodes.Text(text[end:])


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("theory_folder", ".", "html")
    app.add_html_math_renderer("mathml", (_render_inline, None), (_render_block, None))
    app.connect("doctree-resolved", link_equations)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
