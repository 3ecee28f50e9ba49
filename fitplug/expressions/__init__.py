"""Expressions: sums and ratios of counts as people write them, and the people that they count."""

from fitplug.expressions.arithmetic import Formula as Formula, Quotient as Quotient, Terms as Terms
from fitplug.expressions.coefficients import (
    CumulativeBox as CumulativeBox,
    Runs as Runs,
    SparseCoefficients as SparseCoefficients,
    add_boxes as add_boxes,
    union as union,
)
from fitplug.expressions.parser import (
    DenseTerms as DenseTerms,
    Expression as Expression,
    Expressions as Expressions,
    expand_terms as expand_terms,
    list_sums as list_sums,
    parse as parse,
)
from fitplug.expressions.selections import Selector as Selector
