"""Expressions: sums and ratios of counts as people write them, and whom they select."""

from fitplug.expressions.arithmetic import Formula as Formula
from fitplug.expressions.arithmetic import Quotient as Quotient
from fitplug.expressions.arithmetic import Terms as Terms
from fitplug.expressions.coefficients import CumulativeBox as CumulativeBox
from fitplug.expressions.coefficients import Runs as Runs
from fitplug.expressions.coefficients import SparseCoefficients as SparseCoefficients
from fitplug.expressions.coefficients import add_boxes as add_boxes
from fitplug.expressions.coefficients import union as union
from fitplug.expressions.parser import DenseTerms as DenseTerms
from fitplug.expressions.parser import Expression as Expression
from fitplug.expressions.parser import Expressions as Expressions
from fitplug.expressions.parser import expand_terms as expand_terms
from fitplug.expressions.parser import list_sums as list_sums
from fitplug.expressions.parser import parse as parse
from fitplug.expressions.selections import Selector as Selector
