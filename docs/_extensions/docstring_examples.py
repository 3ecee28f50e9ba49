"""Highlight the indented examples in docstrings, which reStructuredText reads as quotations."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

BEFORE_NAPOLEON = 400


def mark_examples(lines: list[str]) -> list[str]:
    """Put a directive above each indented paragraph that follows a paragraph at the margin.

    Args:
        lines: A docstring, dedented.

    Returns:
        The lines of the docstring in which these paragraphs are blocks of Python. Paragraphs in
        the sections of a docstring follow indented lines, and stay as they are.
    """
    marked: list[str] = []
    text = ""  # the last line that is not empty
    for line in lines:
        after_blank = bool(marked) and not marked[-1].strip()
        example = line.startswith("    ") and after_blank and text and not text.startswith(" ")
        if example and not text.endswith("::"):
            marked += [".. code-block:: python", ""]
        marked.append(line)
        text = line if line.strip() else text
    return marked


def change_docstring(app: Sphinx, *arguments: Any) -> None:
    """Sphinx calls this for each docstring: its kind first, the list of its lines last."""
    kind, *_, lines = arguments
    lines[:] = mark_examples(lines)
    if kind in ("property", "data"):
        lines[:0] = ["..", ""]  # Napoleon would read what precedes a colon in line 1 as a type


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", change_docstring, priority=BEFORE_NAPOLEON)
    return {"parallel_read_safe": True}
