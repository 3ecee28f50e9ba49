"""Outward rounding of single numbers: on the safe side, next to the exact one, and no -0."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.display.numbers import format_down, format_up
from fitplug.numeric.rounding import ceil_float, floor_float
from tests.helpers.command_line import fitplug

TINY = Fraction(1, 10**400)
LEAST = math.ulp(0.0)


def signed(value: float) -> tuple[float, float]:
    return value, math.copysign(1, value)


@pytest.mark.parametrize(
    ("exact", "low", "high"),
    [
        (Fraction(0), 0.0, 0.0),
        (TINY, 0.0, LEAST),
        (-TINY, -LEAST, 0.0),
        (Fraction(LEAST), LEAST, LEAST),
        (Fraction(1, 3), 0.333333333333333314829616256247, 0.33333333333333337),
    ],
)
def test_zero_and_what_is_next_to_it(exact: Fraction, low: float, high: float) -> None:
    assert signed(floor_float(exact)) == signed(low)
    assert signed(ceil_float(exact)) == signed(high)


@given(st.fractions(-(10**9), 10**9))
def test_floats_enclose_the_exact_number(exact: Fraction) -> None:
    low, high = floor_float(exact), ceil_float(exact)
    assert Fraction(low) <= exact <= Fraction(high)
    assert low == high or math.nextafter(low, math.inf) == high
    assert "-0.0" not in (repr(low), repr(high))


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zero_is_shown_without_a_sign(zero: float) -> None:
    assert (format_up(zero), format_down(zero)) == ("0", "0")
    assert format_up(-LEAST) in ("0", f"{-LEAST:.3g}")


def test_a_ledger_that_is_spent_has_nothing_left(tmp_path) -> None:
    ledger = fp.Ledger(tmp_path / "budget.db", rho=0.25)
    ledger.charge(0.25, what="all")
    assert repr(ledger.remaining) == "0.0"
    shown = fitplug("ledger", "show", ledger.path)
    assert "-0" not in shown.out.split("no.")[0]
    told = fitplug("ledger", "show", ledger.path, "--json").out
    assert repr(json.loads(told)["remaining"]) == "0.0"
