"""Expressions: sums and ratios of counts as people write them, and whom they select."""

from fitplug.expressions.arithmetic import Formula, Quotient, Terms
from fitplug.expressions.coefficients import (
    CumulativeBox,
    Runs,
    SparseCoefficients,
    add_boxes,
    union,
)
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
    "CumulativeBox",
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
