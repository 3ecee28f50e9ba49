"""Expressions: sums and ratios of counts as people write them, and whom they select."""

from fitplug.expressions.arithmetic import Quotient, Terms
from fitplug.expressions.cell_runs import Runs, union
from fitplug.expressions.coefficients import SparseCoefficients, add_boxes
from fitplug.expressions.parser import DenseTerms, Expressions, expand_terms, parse
from fitplug.expressions.selections import Selector

__all__ = [
    "DenseTerms",
    "Expressions",
    "Quotient",
    "Runs",
    "Selector",
    "SparseCoefficients",
    "Terms",
    "add_boxes",
    "expand_terms",
    "parse",
    "union",
]
