"""Expressions: sums, differences, multiples and ratios of counts, as people write them.

    pyramid[SEX = 1, AGEP <= 17] + total        2 * total - "voting age"
    (a[18 <= AGE <= 64] - b) / total            places[GEOID in [01001, 01003]]
    people[RACE = 1 or 2, AGEP = '18+']         people[RACE = 1|2|3]

    expression = sum of products of counts and numbers; one ratio of counts may stand in it
    counts     = group [ "[" clause { "," clause } "]" ]        clauses hold together
    clause     = condition { or condition }                     any of them, of one attribute
    condition  = attribute = value { or value }                 any of the values, each once
               | attribute in "[" value { "," value } "]"
               | attribute (!= < <= > >=) value | value (< <=) attribute (< <=) value
    or         = "or" | "|"

A group's name, or a value, goes in quotes if it has other characters than letters, digits, _ and
dots, such as '18+' or "New York"; a quote within quotes is doubled. `selections` says what
selections count: whoever several conditions joined by "or" hold for counts once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, NoReturn, TypeAlias, TypeVar

import numpy as np

from fitplug.errors import WorkloadError, quote, suggest_nearest
from fitplug.expressions.cell_runs import Runs
from fitplug.expressions.selections import (
    COMPARISONS,
    Clause,
    Condition,
    Selector,
    SparseCoefficients,
    add_coefficients,
)
from fitplug.numeric import FloatArray
from fitplug.workload import Workload

DenseTerms: TypeAlias = Mapping[str, FloatArray]
"""Coefficients by group, of the group's shape."""

Terms: TypeAlias = Mapping[str, SparseCoefficients]
"""Coefficients by group, of the answers that have any."""

_Sum: TypeAlias = dict[str, list[SparseCoefficients]]
"""Terms that are still to be added up."""

_DEEPEST = 50
_OR = "or"
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<word>[\w.]+)
    | (?P<quoted>"(?:[^"]|"")*"|'(?:[^']|'')*')
    | (?P<sign><=|>=|!=|==|[-+*/()\[\],=<>|])
    )""",
    re.VERBOSE,
)
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Quotient(Generic[T]):
    """One sum of counts over another."""

    numerator: T
    denominator: T


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


class Expressions:
    """What expressions over a workload's groups stand for. Keeps what it looks up, so that many are
    read in time and memory for what they name.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.selector = Selector(workload)

    def read(self, text: str, within: Mapping[str, Runs] | None = None) -> Terms | Quotient[Terms]:
        """The terms that an expression stands for.

        within: cells of attributes that everybody counted must be in besides; groups that do not
        tell such an attribute apart are not affected. Raises WorkloadError, naming the column.
        """
        if not isinstance(text, str) or not text.strip():
            example = _example(self._workload)
            raise WorkloadError(f"{text!r} is no expression; write for example: {example}")
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused later
                found = _Parser(self._workload, self.selector, text, within).parse()
                if isinstance(found, float):
                    hint = suggest_nearest("", self._workload.names)
                    raise WorkloadError(f"it is a number and asks for no count; {hint}")
                if isinstance(found, Quotient):
                    return Quotient(_terms(found.numerator), _terms(found.denominator))
                return _terms(found)
        except WorkloadError as error:
            shown = text if len(text) <= 60 else f"{text[:57]}..."
            raise WorkloadError(f"expression {shown!r}: {error}") from None


def parse(workload: Workload, text: str) -> DenseTerms | Quotient[DenseTerms]:
    """The coefficients that an expression stands for. Raises WorkloadError, naming the column."""
    found = Expressions(workload).read(text)
    if isinstance(found, Quotient):
        return Quotient(
            expand_terms(workload, found.numerator), expand_terms(workload, found.denominator)
        )
    return expand_terms(workload, found)


def expand_terms(workload: Workload, terms: Terms) -> DenseTerms:
    """Coefficients of the groups' shapes."""
    return {name: weights.dense(workload[name].shape) for name, weights in terms.items()}


def _terms(found: _Sum) -> Terms:
    return {name: add_coefficients(parts) for name, parts in found.items()}


class _Parser:
    """Recursive descent: sum, product, atom, conditions."""

    def __init__(
        self, workload: Workload, selector: Selector, text: str, within: Mapping[str, Runs] | None
    ) -> None:
        self._workload, self._selector = workload, selector
        self._text, self._tokens = text, _tokens(text)
        self._within = within
        self._at = 0
        self._depth = 0

    def parse(self) -> float | _Sum | Quotient[_Sum]:
        found = self._sum()
        if self._next.kind != "end":
            self._fail("an operator or the end")
        return found

    def _sum(self) -> float | _Sum | Quotient[_Sum]:
        left = self._product()
        while self._next.text in ("+", "-") and self._next.kind == "sign":
            token = self._take()
            right = self._product()
            left = _added(left, right if token.text == "+" else _times(right, -1.0), token)
        return left

    def _product(self) -> float | _Sum | Quotient[_Sum]:
        left = self._signed()
        while self._next.text in ("*", "/") and self._next.kind == "sign":
            token = self._take()
            right = self._signed()
            left = (_multiplied if token.text == "*" else _divided)(left, right, token)
        return left

    def _signed(self) -> float | _Sum | Quotient[_Sum]:
        factor = 1.0
        while self._is("+") or self._is("-"):
            factor *= -1.0 if self._take().text == "-" else 1.0
        found = self._atom()
        return found if factor == 1.0 else _times(found, factor)

    def _atom(self) -> float | _Sum | Quotient[_Sum]:
        token = self._next
        if token.kind == "number":
            return _finite(float(self._take().text), token)
        if token.kind in ("word", "quoted"):
            return self._counts()
        if not self._is("("):
            self._fail("a group, a number or (")
        self._take()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise WorkloadError(f"parentheses are nested more than {_DEEPEST} deep")
        found = self._sum()
        self._expect(")")
        self._depth -= 1
        return found

    def _counts(self) -> _Sum:
        token = self._take()
        name = token.text
        if name not in self._workload.positions:
            spaces = any(" " in known for known in self._workload.names)
            quotes = " (names with spaces go in quotes)" if spaces else ""
            raise WorkloadError(
                f"no query group {name!r} at column {token.column}; "
                f"{suggest_nearest(name, self._workload.names)}{quotes}"
            )
        clauses: list[Clause] = []
        if self._is("["):
            self._take()
            attributes = [f.attribute for f in self._workload[name].factors]
            clauses.append(self._clause(name, attributes))
            while self._is(","):
                self._take()
                clauses.append(self._clause(name, attributes))
            if not self._is("]"):
                self._fail("]", self._quoting())
            self._take()
        return {name: [self._selector.weights(name, clauses, self._within)]}

    def _clause(self, group: str, attributes: list[str]) -> Clause:
        options = [self._condition(group, attributes)]
        while self._is_or():
            column = self._take().column
            options.append(self._condition(group, attributes))
            if options[-1][0].attribute != options[0][0].attribute:
                raise WorkloadError(
                    f"'or' at column {column} joins conditions on {options[0][0].attribute!r} and "
                    f"{options[-1][0].attribute!r}; it joins those of one attribute, and a comma "
                    "those that hold together"
                )
        return Clause(options[0][0].attribute, tuple(options))

    def _condition(self, group: str, attributes: list[str]) -> tuple[Condition, ...]:
        first = self._next
        left = self._value()
        if left in attributes:
            if self._next.kind == "word" and self._next.text == "in":
                self._take()
                return (Condition(left, "=", self._list()),)
            comparison, values = self._comparison(), [self._value()]
            while self._is_or() and not self._begins_condition():
                if comparison != "=":
                    self._fail("]", f"; values are joined by 'or' after {left} = only")
                self._take()
                values.append(self._value())
            return (Condition(left, comparison, tuple(values)),)
        if self._next.text not in (*COMPARISONS, "=="):
            self._unknown(group, left, attributes, first)
        comparison, right = self._comparison(), self._value()
        if right not in attributes:
            self._unknown(group, left, attributes, first)
        found = [Condition(right, _FLIPPED[comparison], (left,))]
        if self._next.kind == "sign" and self._next.text in (*COMPARISONS, "=="):
            found.append(Condition(right, self._comparison(), (self._value(),)))
        return tuple(found)

    def _is_or(self) -> bool:
        return self._is("|") or (self._next.kind == "word" and self._next.text == _OR)

    def _begins_condition(self) -> bool:
        """Whether a condition follows the "or" that is next, rather than a value."""
        at = self._at + 1
        at += self._tokens[at].kind == "sign" and self._tokens[at].text == "-"
        after = self._tokens[min(at + 1, len(self._tokens) - 1)]
        compares = after.kind == "sign" and after.text in (*COMPARISONS, "==")
        return compares or (after.kind == "word" and after.text == "in")

    def _quoting(self) -> str:
        """What to do if the value before is only the beginning of what was meant."""
        token = self._tokens[self._at - 1]
        if token.kind == "quoted" or self._next.kind == "end":
            return ""
        if self._next.text == "and":
            return "; conditions that hold together are joined by a comma, and words go in quotes"
        meant = re.split(r"[],)|]", self._text[token.column - 1 :], maxsplit=1)[0].strip()
        if not meant or len(meant) > 40 or not meant.isprintable():
            return ""
        return f"; a value with such characters goes in quotes: {quote(meant)}"

    def _comparison(self) -> str:
        if self._next.kind != "sign" or self._next.text not in (*COMPARISONS, "=="):
            self._fail("one of = != < <= > >= in")
        text = self._take().text
        return "=" if text == "==" else text

    def _list(self) -> tuple[str, ...]:
        if not self._is("[") and not self._is("("):
            self._fail("[ and values")
        close = {"[": "]", "(": ")"}[self._take().text]
        values = [self._value()]
        while self._is(","):
            self._take()
            values.append(self._value())
        if not self._is(close):
            self._fail(close, self._quoting())
        self._take()
        return tuple(values)

    def _value(self) -> str:
        minus = ""
        if self._is("-"):
            minus = self._take().text
            if self._next.kind != "number":
                self._fail("a number")
        if self._next.kind not in ("number", "word", "quoted"):
            self._fail("an attribute or a value")
        return minus + self._take().text

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _is(self, sign: str) -> bool:
        return self._next.kind == "sign" and self._next.text == sign

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, sign: str) -> None:
        if not self._is(sign):
            self._fail(sign)
        self._take()

    def _fail(self, wanted: str, hint: str = "") -> NoReturn:
        token = self._next
        found = "the end" if token.kind == "end" else f"{token.text!r} at column {token.column}"
        raise WorkloadError(f"expected {wanted}, found {found}{hint}")

    def _unknown(self, group: str, name: str, attributes: list[str], token: _Token) -> NoReturn:
        raise WorkloadError(
            f"{group!r} has no attribute {name!r} at column {token.column}; "
            f"{suggest_nearest(name, attributes)}"
        )


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            column = at + len(text[at:]) - len(text[at:].lstrip()) + 1
            wrong = text[column - 1]
            why = "a quote that is not closed" if wrong in "\"'" else f"{wrong!r}"
            raise WorkloadError(
                f"{why} at column {column} means nothing here; names and values with other "
                "characters than letters, digits, _ and dots go in quotes"
            )
        kind = str(match.lastgroup)
        token = match[kind]
        if kind == "quoted":
            token = token[1:-1].replace(2 * token[0], token[0])
        found.append(_Token(kind, token, match.start(kind) + 1))
        at = match.end()
    return [*found, _Token("end", "", end + 1)]


def _added(left: Any, right: Any, token: _Token) -> Any:
    if isinstance(left, Quotient) or isinstance(right, Quotient):
        raise WorkloadError(
            f"a ratio cannot be added to anything at column {token.column}; ask for each apart"
        )
    if isinstance(left, float) and isinstance(right, float):
        return left + right
    if isinstance(left, float) or isinstance(right, float):
        raise WorkloadError(
            f"a number cannot be added to counts at column {token.column}; multiply by it"
        )
    for name, parts in right.items():  # both are the parser's own: nothing is copied
        left.setdefault(name, []).extend(parts)
    return left


def _multiplied(left: Any, right: Any, token: _Token) -> Any:
    for factor, other in ((left, right), (right, left)):
        if isinstance(factor, float):
            return _times(other, factor)
    raise WorkloadError(f"counts cannot be multiplied by counts at column {token.column}")


def _divided(left: Any, right: Any, token: _Token) -> Any:
    if isinstance(right, float):
        if right == 0.0:
            raise WorkloadError(f"a division by zero at column {token.column}")
        return _times(left, _finite(1 / right, token))
    if isinstance(left, dict) and isinstance(right, dict):
        return Quotient(left, right)
    raise WorkloadError(f"only counts can be divided by counts, and once, at column {token.column}")


def _times(found: Any, factor: float) -> Any:
    if isinstance(found, float):
        return found * factor
    if isinstance(found, Quotient):
        return Quotient(_times(found.numerator, factor), found.denominator)
    return {
        name: [SparseCoefficients(part.places, factor * part.weights) for part in parts]
        for name, parts in found.items()
    }


def _finite(number: float, token: _Token) -> float:
    if not math.isfinite(number):
        raise WorkloadError(f"the number at column {token.column} is too large")
    return number


def _example(workload: Workload) -> str:
    name = workload.names[0]
    return name if re.fullmatch(r"[^\W\d]\w*", name) else '"' + name.replace('"', '""') + '"'
