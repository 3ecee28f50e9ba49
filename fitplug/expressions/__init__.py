"""Expressions: sums and ratios of counts as people write them, and whom they select."""

from fitplug.expressions.cell_runs import Runs, union
from fitplug.expressions.parser import DenseTerms, Expressions, Quotient, Terms, expand_terms, parse
from fitplug.expressions.selections import Selector, SparseCoefficients, add_coefficients

__all__ = [
    "DenseTerms",
    "Expressions",
    "Quotient",
    "Runs",
    "Selector",
    "SparseCoefficients",
    "Terms",
    "add_coefficients",
    "expand_terms",
    "parse",
    "union",
]
