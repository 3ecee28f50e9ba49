"""Expressions: sums and ratios of counts as people write them, and whom they select."""

from fitplug.expressions.cell_runs import Runs, union
from fitplug.expressions.parser import Expressions, Linear, Quotient, Terms, dense, parse
from fitplug.expressions.selections import Selector, Weights, summed

__all__ = [
    "Expressions",
    "Linear",
    "Quotient",
    "Runs",
    "Selector",
    "Terms",
    "Weights",
    "dense",
    "parse",
    "summed",
    "union",
]
