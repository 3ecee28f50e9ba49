"""Integers that count shares of records, as measures divide them, and differences of k records.

The forms know integers that count records, and the differences of one record. What they prove is
carried over to the integers and the unit of privacy that a strategy has.
"""

from __future__ import annotations

from dataclasses import replace

from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.strategy_form import StrategyCost
from fitplug.families.base.structure import Structure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray


def multiply_changes(cost: StrategyCost, changes: int) -> StrategyCost:
    """Return the cost of differences that are k times as large; see `Structure.changes`."""
    if changes == 1:
        return cost
    squares = cost.column_squares * float(changes**2) * (1 + 4 * UNIT_ROUNDOFF)
    return StrategyCost(cost.sensitivity_squared * changes**2, squares, cost.max_records)


def count_in_shares(cost: StrategyCost, structure: Structure) -> StrategyCost:
    """Return the cost of integers that count shares of records; see `Structure.shares`.

    A record is a convex combination of records in one cell each, times the number of shares. The
    norm is convex, so no record costs more than one at the bounds of its measures.
    """
    shares = structure.shares
    if shares == 1:
        return cost
    squares = cost.column_squares * float(shares**2) * (1 + 4 * UNIT_ROUNDOFF)
    return StrategyCost(cost.sensitivity_squared * shares**2, squares, cost.max_records // shares)


def count_in_records(strategy: IntegerStrategy) -> IntegerStrategy:
    """Return a strategy with the squared sensitivity of its integers, which records multiply by
    their number of shares; the inverse of `count_in_shares`.
    """
    shares = strategy.structure.shares
    if shares == 1:
        return strategy
    return replace(strategy, sensitivity_squared=strategy.sensitivity_squared // shares**2)


def divide_bounds(bounds: FloatArray, number: int) -> FloatArray:
    """Divide numbers by an integer, with what rounding takes away added to them."""
    return bounds if number == 1 else bounds / float(number) * (1 + 4 * UNIT_ROUNDOFF)
