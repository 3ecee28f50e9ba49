"""Expressions: sums, differences, multiples and ratios of counts, as people write them.

    pyramid[SEX = 1, AGEP <= 17] + total        2 * total - "voting age"
    (a[18 <= AGE <= 64] - b) / total            places[GEOID in [01001, 01003]]

A group's name, in quotes if it is not letters, digits and underscores, may be followed by
conditions in brackets; `fitplug.selections` says what they count. Values with other characters
are quoted too; a quote within quotes is doubled. One ratio of counts may stand in an expression.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import WorkloadError, nearest
from fitplug.selections import COMPARISONS, Condition, coefficients
from fitplug.workload import Workload

Linear: TypeAlias = Mapping[str, npt.NDArray[np.float64]]
"""Coefficients by group, of the group's shape."""

_LONGEST, _DEEPEST = 10_000, 50
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<word>[\w.]+)
    | (?P<quoted>"(?:[^"]|"")*"|'(?:[^']|'')*')
    | (?P<sign><=|>=|!=|==|[-+*/()\[\],=<>])
    )""",
    re.VERBOSE,
)
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, eq=False)
class Quotient:
    """One sum of counts over another."""

    numerator: Linear
    denominator: Linear


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


def parse(workload: Workload, text: str) -> Linear | Quotient:
    """The coefficients that an expression stands for. Raises WorkloadError, naming the column."""
    if not isinstance(text, str) or not text.strip():
        raise WorkloadError(f"{text!r} is no expression; write for example: {_example(workload)}")
    try:
        if len(text) > _LONGEST:
            raise WorkloadError(f"it has more than {_LONGEST} characters; ask for parts of it")
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused later
            found = _Parser(workload, text).parse()
        if isinstance(found, float):
            raise WorkloadError(f"it is a number and asks for no count; {_groups(workload)}")
    except WorkloadError as error:
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise WorkloadError(f"expression {shown!r}: {error}") from None
    return found


class _Parser:
    """Recursive descent: sum, product, atom, conditions."""

    def __init__(self, workload: Workload, text: str) -> None:
        self._workload = workload
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def parse(self) -> float | Linear | Quotient:
        found = self._sum()
        if self._next.kind != "end":
            self._fail("an operator or the end")
        return found

    def _sum(self) -> float | Linear | Quotient:
        left = self._product()
        while self._next.text in ("+", "-") and self._next.kind == "sign":
            token = self._take()
            right = self._product()
            left = _added(left, right if token.text == "+" else _times(right, -1.0), token)
        return left

    def _product(self) -> float | Linear | Quotient:
        left = self._signed()
        while self._next.text in ("*", "/") and self._next.kind == "sign":
            token = self._take()
            right = self._signed()
            left = (_multiplied if token.text == "*" else _divided)(left, right, token)
        return left

    def _signed(self) -> float | Linear | Quotient:
        factor = 1.0
        while self._is("+") or self._is("-"):
            factor *= -1.0 if self._take().text == "-" else 1.0
        found = self._atom()
        return found if factor == 1.0 else _times(found, factor)

    def _atom(self) -> float | Linear | Quotient:
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

    def _counts(self) -> Linear:
        token = self._take()
        name = token.text
        if name not in self._workload.positions:
            spaces = any(" " in known for known in self._workload.names)
            quotes = " (names with spaces go in quotes)" if spaces else ""
            raise WorkloadError(
                f"no query group {name!r} at column {token.column}; "
                f"{nearest(name, self._workload.names)}{quotes}"
            )
        group = self._workload[name]
        conditions: list[Condition] = []
        if self._is("["):
            self._take()
            attributes = [f.attribute for f in group.factors]
            conditions += self._condition(name, attributes)
            while self._is(","):
                self._take()
                conditions += self._condition(name, attributes)
            self._expect("]")
        return {name: coefficients(self._workload.domain, group, conditions)}

    def _condition(self, group: str, attributes: list[str]) -> list[Condition]:
        first = self._next
        left = self._value()
        if left in attributes:
            if self._next.kind == "word" and self._next.text == "in":
                self._take()
                return [Condition(left, "=", self._list())]
            return [Condition(left, self._comparison(), (self._value(),))]
        if self._next.text not in (*COMPARISONS, "=="):
            self._unknown(group, left, attributes, first)
        comparison, right = self._comparison(), self._value()
        if right not in attributes:
            self._unknown(group, left, attributes, first)
        found = [Condition(right, _FLIPPED[comparison], (left,))]
        if self._next.kind == "sign" and self._next.text in (*COMPARISONS, "=="):
            found.append(Condition(right, self._comparison(), (self._value(),)))
        return found

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
        self._expect(close)
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

    def _fail(self, wanted: str) -> NoReturn:
        token = self._next
        found = "the end" if token.kind == "end" else f"{token.text!r} at column {token.column}"
        raise WorkloadError(f"expected {wanted}, found {found}")

    def _unknown(self, group: str, name: str, attributes: list[str], token: _Token) -> NoReturn:
        raise WorkloadError(
            f"{group!r} has no attribute {name!r} at column {token.column}; "
            f"{nearest(name, attributes)}"
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
            raise WorkloadError(f"{why} at column {column} means nothing here")
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
    return {
        name: left.get(name, 0.0) + right.get(name, 0.0) for name in dict.fromkeys([*left, *right])
    }


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
    return {name: factor * array for name, array in found.items()}


def _finite(number: float, token: _Token) -> float:
    if not math.isfinite(number):
        raise WorkloadError(f"the number at column {token.column} is too large")
    return number


def _example(workload: Workload) -> str:
    name = workload.names[0]
    return name if re.fullmatch(r"[^\W\d]\w*", name) else '"' + name.replace('"', '""') + '"'


def _groups(workload: Workload) -> str:
    return nearest("", workload.names)
