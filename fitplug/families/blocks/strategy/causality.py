"""Causality: answers that need no counts of later periods.

One attribute gives a record's period. A strategy is causal along it if, for every t, queries that
count no period after t are estimated from answers that need no period after t. Then the answers of
one release can be drawn period by period, as the data arrive.

The integers M of a block are upper triangular over the rows of its basis. If the basis has classes
of cells, ordered by their last period from latest to earliest, then the classes that end by period
t are the last rows and columns of M. So the last answers need these classes alone, and determine
them. Causality is a property of the integers alone; a plan has no other sign of it. See
docs/theory/series.md.
"""

from __future__ import annotations

import math

import numpy as np

from fitplug.domain import get_shape
from fitplug.families.base.basis import Basis
from fitplug.families.base.block_sets import BlockSetIntegers
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.numeric import FloatArray, IntArray
from fitplug.workload import QueryGroup, classify_cells


def choose_causal_basis(structure: Structure, matrix: FloatArray, attribute: str) -> Basis:
    """Choose a block's basis so that triangular integers are causal.

    Args:
        structure: The structure.
        matrix: The queries of the block, shape (r, D).
        attribute: The dense attribute whose cells are the periods, in order of time.

    Returns:
        The classes of cells that no query distinguishes, ordered by their last period from latest
        to earliest. There may be more classes than linearly independent queries; see
        `choose_basis`.
    """
    classes = classify_cells(matrix)
    last = _find_last_periods(structure, classes, attribute)
    order = np.argsort(-last, kind="stable")
    numbers = np.empty(len(last), dtype=np.int64)
    numbers[order] = np.arange(len(last))
    renumbered = np.where(classes >= 0, numbers[classes], -1)
    return Basis("cells", renumbered, np.ones(len(last)))


def is_causal(strategy: IntegerStrategy[Structure], attribute: str) -> bool:
    """Tell whether a strategy is causal along an attribute, from its integers alone."""
    structure = strategy.structure
    if not isinstance(strategy, BlockSetIntegers) or not isinstance(structure, MatrixStructure):
        return False
    if attribute not in structure.dense:
        return False
    if structure.public_attributes is not None:
        return False  # public totals are known only when all periods are over
    for block_set in strategy.block_sets:
        if block_set.basis.kind != "cells":
            return False
        last = _find_last_periods(structure, block_set.basis.index, attribute)
        if (np.diff(last) > 0).any():
            return False
    # The integers of a plan have this form. This is checked last, as there may be many.
    return not any(
        np.tril(block_set.M, -1).any() or not np.diagonal(block_set.M, axis1=1, axis2=2).all()
        for block_set in strategy.block_sets
    )


def separates_periods(strategy: IntegerStrategy[Structure], attribute: str) -> bool:
    """Tell whether each class of cells in a causal strategy lies in one period.

    If so, all answers about a period's cells are drawn in this period, and none later.
    """
    assert isinstance(strategy, BlockSetIntegers)
    periods = _find_periods(strategy.structure, attribute)
    for block_set in strategy.block_sets:
        classes = block_set.basis.index
        last = _find_last_periods(strategy.structure, classes, attribute)
        if (last[classes] != periods)[classes >= 0].any():
            return False
    return True


def date_answers(strategy: IntegerStrategy[Structure], attribute: str) -> IntArray:
    """Find the period in which each answer of a causal strategy is drawn.

    Args:
        strategy: A strategy that `is_causal` along the attribute.
        attribute: The attribute.

    Returns:
        The index of the latest period that the answer needs, shape (strategy.size,).
    """
    assert isinstance(strategy, BlockSetIntegers)
    dates = np.zeros(strategy.size, dtype=np.int64)
    for block_set, _, shape, start in strategy.list_blocks():
        last = _find_last_periods(strategy.structure, block_set.basis.index, attribute)
        dates[start : start + math.prod(shape)] = np.broadcast_to(last, shape).ravel()
    return dates


def date_queries(group: QueryGroup, attribute: str, periods: int) -> IntArray:
    """Find the period after which each query of a group is known.

    Args:
        group: The group.
        attribute: The attribute whose cells are the periods.
        periods: The number of its cells.

    Returns:
        The index of the latest period that each query counts, in the group's shape, read-only. A
        query without coefficients is known after the first period.
    """
    for axis, factor in enumerate(group.factors):
        if factor.attribute == attribute:
            counted = factor.matrix() != 0
            last = np.where(counted, np.arange(periods), 0).max(axis=1)
            along = last.reshape(-1, *(1,) * (len(group.shape) - axis - 1))
            return np.broadcast_to(along, group.shape)
    return np.broadcast_to(np.int64(periods - 1), group.shape)


def _find_last_periods(structure: Structure, classes: IntArray, attribute: str) -> IntArray:
    """Find the last period in which each class (D,) of dense cells has a cell, shape (n,)."""
    periods = _find_periods(structure, attribute)
    last = np.zeros(int(classes.max()) + 1, dtype=np.int64)
    counted = np.flatnonzero(classes >= 0)
    np.maximum.at(last, classes[counted], periods[counted])
    return last


def _find_periods(structure: Structure, attribute: str) -> IntArray:
    """Find the period of each dense cell, shape (D,)."""
    shape = get_shape(structure.workload.domain, structure.dense)
    return np.indices(shape)[structure.dense.index(attribute)].ravel()
