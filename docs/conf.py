"""The site for users. The theory, the proofs and the code map are a site of their own: theory/."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.addnodes import desc_annotation
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject

from fitplug import __version__

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "fitplug"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "gallery",
    "landing",
    "theory_links",
    "cli_reference",
    "docstring_examples",
]
exclude_patterns = ["_extensions", "proofs", "theory"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
smartquotes_action = "qe"  # no dashes: options of commands begin with two hyphens

default_role = "code"  # docstrings write `name`, as Markdown does
autodoc_default_options = {"members": True, "inherited-members": True, "member-order": "bysource"}
autodoc_type_aliases = {
    "ArrayLike": "ArrayLike",
    "npt.ArrayLike": "ArrayLike",
    "npt.NDArray": "NDArray",
    "CombinationLike": "str | Mapping[str, ArrayLike]",
}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_use_legacy_class_based = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "pydata_sphinx_theme"
html_title = "fitplug"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")  # page titles first
html_show_sourcelink = False
html_sidebars = {"index": [], "about": []}
theory_folder = "theory"
html_theme_options = {
    "external_links": [{"name": "Theory", "url": "theory/index.html"}],
    "navigation_with_keys": False,
    "show_toc_level": 2,
}


RESULTS = [
    "Approximation",
    "DisplayTables",
    "Entry",
    "Estimate",
    "Estimates",
    "Evaluation",
    "Mechanism",
    "NoisyAnswers",
    "PartialRelease",
    "Plan",
    "PlanRecord",
    "Preview",
    "Ratio",
    "Relaxation",
    "Release",
]
"""Classes that functions return, and that no reader constructs."""


def setup(app: Sphinx) -> None:
    """Read comma-separated values as plain text, which Pygments has no lexer for."""
    app.add_lexer("csv", TextLexer)
    for field in PyObject.doc_field_types:  # Sphinx calls them Variables
        if field.name == "variable":
            field.label = "Attributes"
    app.connect("autodoc-process-signature", tidy_signature)
    app.connect("autodoc-process-docstring", tidy_types, priority=600)  # after napoleon's types
    app.connect("doctree-resolved", set_dashes)
    app.connect("doctree-resolved", tidy_properties)
    app.connect("autodoc-skip-member", skip_inherited)


def tidy_signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, arguments: str | None, returns: Any
) -> tuple[str, Any] | None:
    """Show an alias of a type as the type, and what nobody constructs without arguments."""
    if arguments is None:
        return None
    if what == "class" and name.rpartition(".")[2] in RESULTS:
        return "", returns
    arguments = re.sub(r"TypeAliasForwardRef\('([^']*)'\)", r"\1", arguments)
    arguments = shorten_arrays(re.sub(r"<function (\w+)[^>]*>", r"\1", arguments))  # a default
    returns = None if returns is None else shorten_arrays(returns)
    return "" if getattr(value, "_is_protocol", False) else arguments, returns


def tidy_types(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Show the types of arrays, and classes without their modules, among attributes of a class."""
    for i, line in enumerate(map(shorten_arrays, lines)):
        is_type = line.lstrip().startswith(":vartype")
        lines[i] = re.sub(r"(?<![~\w.])(fitplug[\w.]*\.[A-Z])", r"~\1", line) if is_type else line


def shorten_arrays(text: str) -> str:
    """Write NDArray[float64] for the type that it stands for."""
    module = r"~?(?:numpy\.|typing\.)?"
    array = rf"{module}ndarray\[tuple\[{module}Any, \.\.\.\], {module}dtype\[{module}(\w+)\]\]"
    return re.sub(array, r"NDArray[\1]", text)


def set_dashes(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Set a dash between a parameter and its description, where Sphinx puts two hyphens."""
    for text in list(doctree.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def tidy_properties(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Show the types of properties that are arrays in short."""
    for annotation in doctree.findall(desc_annotation):
        text = annotation.astext()
        if shorten_arrays(text) != text:
            annotation.children = [nodes.Text(shorten_arrays(text))]


def skip_inherited(
    app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what tuples and mappings have; fields of tuples are under Attributes."""
    known = (tuple.count, tuple.index, Mapping.get, Mapping.items, Mapping.keys, Mapping.values)
    return True if value in known or type(value).__name__ == "_tuplegetter" else None
