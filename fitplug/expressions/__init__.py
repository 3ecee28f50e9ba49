"""Expressions: sums and ratios of counts as people write them, and whom they select."""

from fitplug.expressions.arithmetic import Terms
from fitplug.expressions.cell_runs import Runs, union
from fitplug.expressions.coefficients import SparseCoefficients, add_boxes
from fitplug.expressions.formulas import Formula, Quotient
from fitplug.expressions.parser import (
    DenseTerms,
    Expression,
    Expressions,
    expand_terms,
    list_sums,
    parse,
)
from fitplug.expressions.selections import Selector

__all__ = [
    "DenseTerms",
    "Expression",
    "Expressions",
    "Formula",
    "Quotient",
    "Runs",
    "Selector",
    "SparseCoefficients",
    "Terms",
    "add_boxes",
    "expand_terms",
    "list_sums",
    "parse",
    "union",
]
