"""Expressions: sums, differences, multiples and ratios of counts, written as text.

    pyramid[SEX = 1, AGEP <= 17] + total        2 * total - "voting age"
    (a[18 <= AGE <= 64] - b) / total            places[GEOID in [01001, 01003]]
    people[RACE = 1 or 2, AGEP = '18+']         people[RACE = 1|2|3]

    income[SEX = 1] / people[SEX = 1] - income[SEX = 2] / people[SEX = 2]

    expression = sums of counts times numbers, their ratios, and sums and products of ratios
    counts     = group [ "[" clause { "," clause } "]" ]        a person must meet all clauses
    clause     = condition { or condition }                     at least one holds; one attribute
    condition  = attribute = value { or value }                 one of the values
               | attribute in "[" value { "," value } "]"
               | attribute (!= < <= > >=) value | value (< <=) attribute (< <=) value
    or         = "or" | "|"

The name of a group, or a value, stands in quotes if it has characters other than letters, digits, _
and dots, such as '18+' or "New York". A quote inside is doubled. The module `selections` defines
what a selection counts. A person who meets several conditions joined by "or" counts once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np

from fitplug.errors import WorkloadError, quote, suggest_nearest
from fitplug.expressions.arithmetic import (
    Formula,
    Quotient,
    Terms,
    UnaddedTerms,
    Value,
    add,
    check_finite,
    divide,
    multiply,
    scale,
)
from fitplug.expressions.coefficients import Box, CumulativeBox, Runs, merge_boxes
from fitplug.expressions.selections import Selector
from fitplug.expressions.tokens import COMPARISONS, Clause, Condition, Token, split_tokens
from fitplug.numeric import FloatArray
from fitplug.workload import Workload

Expression: TypeAlias = Terms | Quotient[Terms] | Formula[Terms]
"""A sum of counts, a ratio of two sums, or a formula of several sums."""

DenseTerms: TypeAlias = Mapping[str, FloatArray]
"""The coefficients of a sum: by group, an array of the group's shape."""

_DEEPEST = 50
_OR = "or"
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Expressions:
    """Reads expressions over the groups of a workload.

    Lookups are cached, so reading many expressions takes time and memory in proportion to the names
    and values in them.

    Attributes:
        selector: Turns selections into coefficients.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.selector = Selector(workload)

    def read(self, text: str, within: Mapping[str, Runs] | None = None) -> Expression:
        """Read an expression.

        Args:
            text: The expression.
            within: Cells, by attribute, to which everyone counted must also belong. Groups that do
                not distinguish such an attribute are not affected.

        Raises:
            WorkloadError: The expression is not well formed; the message names the column.
        """
        if not isinstance(text, str) or not text.strip():
            example = _make_example(self._workload)
            raise WorkloadError(f"{text!r} is not an expression. Write for example: {example}")
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # checked later
                select = partial(self.selector.select, within=within)
                value = _Parser(self._workload, select, text).parse()
                if isinstance(value, float):
                    hint = suggest_nearest("", self._workload.names)
                    raise WorkloadError(f"the expression names no query group. {hint}")
                if isinstance(value, Quotient):
                    return Quotient(
                        _add_up(self._workload, value.numerator),
                        _add_up(self._workload, value.denominator),
                    )
                if isinstance(value, Formula):
                    sums = tuple(_add_up(self._workload, terms) for terms in value.sums)
                    return Formula(sums, value.summands)
                return _add_up(self._workload, value)
        except WorkloadError as error:
            shown = text if len(text) <= 60 else f"{text[:57]}..."
            raise WorkloadError(f"expression {shown!r}: {error}") from None

    def read_cumulative(
        self, text: str, within: Mapping[str, Runs], attribute: str
    ) -> dict[str, list[CumulativeBox]]:
        """Read a sum of counts, up to each cell of an attribute.

        Args:
            text: The expression, which `read` has read.
            within: As for `read`, with cells of the attribute.
            attribute: The attribute, which all groups of the expression list.

        Returns:
            The boxes of each group.

        Raises:
            WorkloadError: The groups cannot count the people in `within`.
        """
        select = partial(self.selector.select_cumulative, within=within, attribute=attribute)
        terms: Any = _Parser(self._workload, select, text).parse()
        return dict(terms)


def list_sums(expression: Expression) -> tuple[Terms, ...]:
    """List the sums of counts in an expression: two for a ratio."""
    if isinstance(expression, Quotient):
        return expression.numerator, expression.denominator
    return expression.sums if isinstance(expression, Formula) else (expression,)


def parse(workload: Workload, text: str) -> DenseTerms | Quotient[DenseTerms]:
    """Read a sum of counts, or a ratio of two, as arrays of coefficients.

    Raises:
        WorkloadError: The expression is not well formed, with the column, or is a sum of ratios.
    """
    read = Expressions(workload).read(text)
    if isinstance(read, Formula):
        raise WorkloadError(
            f"expression {text!r} must be a sum of counts or one ratio, not several ratios"
        )
    if isinstance(read, Quotient):
        return Quotient(
            expand_terms(workload, read.numerator), expand_terms(workload, read.denominator)
        )
    return expand_terms(workload, read)


def expand_terms(workload: Workload, terms: Terms) -> DenseTerms:
    """Expand terms to arrays of the groups' shapes."""
    return {name: summed.to_array(workload[name].shape) for name, summed in terms.items()}


def _add_up(workload: Workload, terms: UnaddedTerms) -> Terms:
    """Add the coefficients of each group."""
    return {name: merge_boxes(workload[name].shape, boxes) for name, boxes in terms.items()}


class _Parser:
    """A parser by recursive descent, with a method per rule of the grammar."""

    def __init__(
        self, workload: Workload, select: Callable[[str, list[Clause]], Box], text: str
    ) -> None:
        self._workload, self._select = workload, select
        self._text, self._tokens = text, split_tokens(text)
        self._at = 0
        self._depth = 0

    def parse(self) -> Value:
        """Parse the complete expression."""
        value = self._parse_sum()
        if self._next.kind != "end":
            self._fail("an operator or the end", self._suggest_operators())
        return value

    def _suggest_operators(self) -> str:
        """Make a hint about the text after an expression that could have ended."""
        before, after = self._tokens[self._at - 1], self._next
        if after.text in (*COMPARISONS, "==", "|", _OR, "and") and after.kind != "quoted":
            return ". Outside brackets, only + - * / are operators"
        if before.kind == after.kind == "word":
            return ". Put names with spaces in single quotes"
        return ""

    def _parse_sum(self) -> Value:
        """Parse products with + and - between them."""
        left = self._parse_product()
        while self._next.text in ("+", "-") and self._next.kind == "sign":
            token = self._take()
            right = self._parse_product()
            left = add(left, right if token.text == "+" else scale(right, -1.0), token)
        return left

    def _parse_product(self) -> Value:
        """Parse atoms with * and / between them."""
        left = self._parse_signed()
        while self._next.text in ("*", "/") and self._next.kind == "sign":
            token = self._take()
            right = self._parse_signed()
            left = multiply(left, right, token) if token.text == "*" else divide(left, right, token)
        return left

    def _parse_signed(self) -> Value:
        """Parse an atom with signs in front."""
        factor = 1.0
        while self._is("+") or self._is("-"):
            factor *= -1.0 if self._take().text == "-" else 1.0
        value = self._parse_atom()
        return value if factor == 1.0 else scale(value, factor)

    def _parse_atom(self) -> Value:
        """Parse a number, counts, or an expression in parentheses."""
        token = self._next
        if token.kind == "number":
            return check_finite(float(self._take().text), token)
        if token.kind in ("word", "quoted"):
            return self._parse_counts()
        if not self._is("("):
            self._fail("a group, a number or (")
        self._take()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise WorkloadError(
                f"parentheses are nested more than {_DEEPEST} levels deep. Use fewer parentheses."
            )
        value = self._parse_sum()
        self._expect(")")
        self._depth -= 1
        return value

    def _parse_counts(self) -> UnaddedTerms:
        """Parse the name of a group, with or without a selection."""
        token = self._take()
        name = token.text
        if name not in self._workload.groups.positions:
            raise WorkloadError(
                f"no query group {name!r} at character {token.column}. "
                f"{_suggest_name(name, self._workload.names)}"
            )
        clauses: list[Clause] = []
        if self._is("["):
            self._take()
            attributes = [f.attribute for f in self._workload[name].factors]
            clauses.append(self._parse_clause(name, attributes))
            while self._is(","):
                self._take()
                clauses.append(self._parse_clause(name, attributes))
            if not self._is("]"):
                self._fail("]", self._suggest_quotes())
            self._take()
        return {name: [self._select(name, clauses)]}

    def _parse_clause(self, group: str, attributes: list[str]) -> Clause:
        """Parse conditions of one attribute with "or" between them."""
        options = [self._parse_condition(group, attributes)]
        while self._is_or():
            column = self._take().column
            options.append(self._parse_condition(group, attributes))
            if options[-1][0].attribute != options[0][0].attribute:
                raise WorkloadError(
                    f"'or' at character {column} joins conditions on {options[0][0].attribute!r} "
                    f"and {options[-1][0].attribute!r}. Use 'or' within one attribute only."
                )
        return Clause(options[0][0].attribute, tuple(options))

    def _parse_condition(self, group: str, attributes: list[str]) -> tuple[Condition, ...]:
        """Parse a condition; one with two comparisons, as in 18 <= AGE <= 64, gives two."""
        first = self._next
        left = self._parse_value()
        if left in attributes:
            if self._next.kind == "word" and self._next.text == "in":
                self._take()
                return (Condition(left, "=", self._parse_list()),)
            comparison, values = self._parse_comparison(), [self._parse_value()]
            while self._is_or() and not self._begins_condition():
                if comparison != "=":
                    self._fail("]", f". Only values after {left} = can be joined by 'or'")
                self._take()
                values.append(self._parse_value())
            return (Condition(left, comparison, tuple(values)),)
        if self._next.text not in (*COMPARISONS, "=="):
            self._fail_unknown(group, left, attributes, first)
        comparison, right = self._parse_comparison(), self._parse_value()
        if right not in attributes:
            self._fail_unknown(group, left, attributes, first)
        conditions = [Condition(right, _FLIPPED[comparison], (left,))]
        if self._next.kind == "sign" and self._next.text in (*COMPARISONS, "=="):
            conditions.append(Condition(right, self._parse_comparison(), (self._parse_value(),)))
        return tuple(conditions)

    def _is_or(self) -> bool:
        """Return whether the next token is an "or"."""
        return self._is("|") or (self._next.kind == "word" and self._next.text == _OR)

    def _begins_condition(self) -> bool:
        """Return whether the next token, an "or", is followed by a condition and not by a value."""
        at = self._at + 1
        at += self._tokens[at].kind == "sign" and self._tokens[at].text == "-"
        after = self._tokens[min(at + 1, len(self._tokens) - 1)]
        compares = after.kind == "sign" and after.text in (*COMPARISONS, "==")
        return compares or (after.kind == "word" and after.text == "in")

    def _suggest_quotes(self) -> str:
        """Make a hint for a value that was cut off because it is not in quotes."""
        token = self._tokens[self._at - 1]
        if token.kind == "quoted" or self._next.kind == "end":
            return ""
        if self._next.text == "and":
            return ". Separate conditions with a comma, and put words in quotes"
        meant = re.split(r"[],)|]", self._text[token.column - 1 :], maxsplit=1)[0].strip()
        if not meant or len(meant) > 40 or not meant.isprintable():
            return ""
        return f". Put this value in quotes: {quote(meant)}"

    def _parse_comparison(self) -> str:
        """Parse one of COMPARISONS; == is the same as =."""
        if self._next.kind != "sign" or self._next.text not in (*COMPARISONS, "=="):
            self._fail("one of = != < <= > >= in")
        text = self._take().text
        return "=" if text == "==" else text

    def _parse_list(self) -> tuple[str, ...]:
        """Parse a list of values in brackets or parentheses."""
        if not self._is("[") and not self._is("("):
            self._fail("[ and values")
        close = {"[": "]", "(": ")"}[self._take().text]
        values = [self._parse_value()]
        while self._is(","):
            self._take()
            values.append(self._parse_value())
        if not self._is(close):
            self._fail(close, self._suggest_quotes())
        self._take()
        return tuple(values)

    def _parse_value(self) -> str:
        """Parse a value or the name of an attribute."""
        minus = ""
        if self._is("-"):
            minus = self._take().text
            if self._next.kind != "number":
                self._fail("a number")
        if self._next.kind not in ("number", "word", "quoted"):
            self._fail("an attribute or a value")
        return minus + self._take().text

    @property
    def _next(self) -> Token:
        """The next token."""
        return self._tokens[self._at]

    def _is(self, sign: str) -> bool:
        """Return whether the next token is a sign."""
        return self._next.kind == "sign" and self._next.text == sign

    def _take(self) -> Token:
        """Return the next token and go on to the one after it."""
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, sign: str) -> None:
        """Take a sign that must come next."""
        if not self._is(sign):
            self._fail(sign)
        self._take()

    def _fail(self, wanted: str, hint: str = "") -> NoReturn:
        """Raise WorkloadError because another token than the next one is needed."""
        token = self._next
        actual = "the end" if token.kind == "end" else f"{token.text!r} at character {token.column}"
        raise WorkloadError(f"expected {wanted}, found {actual}{hint}")

    def _fail_unknown(self, group: str, name: str, attributes: list[str], token: Token) -> NoReturn:
        """Raise WorkloadError for a name that is not an attribute of a group."""
        raise WorkloadError(
            f"{group!r} has no attribute {name!r} at character {token.column}. "
            f"{_suggest_name(name, attributes) if attributes else 'Leave out the brackets.'}"
        )


def _suggest_name(name: str, known: Sequence[str]) -> str:
    """Suggest the nearest name, and quotes if a known name has spaces."""
    quotes = " Put names with spaces in quotes." if any(" " in one for one in known) else ""
    return f"{suggest_nearest(name, known)}{quotes}"


def _make_example(workload: Workload) -> str:
    """Make an example of an expression: the name of the first group."""
    name = workload.names[0]
    return name if re.fullmatch(r"[^\W\d]\w*", name) else '"' + name.replace('"', '""') + '"'
