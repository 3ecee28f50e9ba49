"""Rows of Markdown tables, which the benchmarks print."""

from __future__ import annotations

from collections.abc import Iterable


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def heading(columns: list[str]) -> str:
    return line(columns) + "\n" + line(["---"] * len(columns))
