"""Exact rational linear algebra, for small cases only: what the tests hold floats against."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
from scipy.linalg import hadamard

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.product.strategy.node_trees import NodeTreeMatrix
from fitplug.families.product.strategy.trees import TreeMatrix
from fitplug.families.tree.strategy.blocks import TreeIntegers
from fitplug_opendp.noise_source import compute_exact_answers
from tests.helpers.tree_strategies import write_out


def rationals(matrix):
    """The exact values of a float or integer matrix."""
    return [
        [Fraction(int(v)) if float(v).is_integer() else Fraction(float(v)) for v in r]
        for r in matrix
    ]


def solve_left(A, w):
    """r with r A = w, for A (n x d) of full row rank; None if w is not in its row space."""
    n, d = len(A), len(A[0])
    rows = [[A[i][j] for i in range(n)] + [w[j]] for j in range(d)]
    pivots, at = [], 0
    for column in range(n):
        pivot = next((i for i in range(at, d) if rows[i][column] != 0), None)
        assert pivot is not None, "A has not full row rank"
        rows[at], rows[pivot] = rows[pivot], rows[at]
        lead = rows[at][column]
        rows[at] = [v / lead for v in rows[at]]
        for i in range(d):
            if i != at and rows[i][column] != 0:
                factor = rows[i][column]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[at], strict=True)]
        pivots.append(at)
        at += 1
    if any(row[n] != 0 for row in rows[at:]):
        return None
    return [rows[p][n] for p in pivots]


def least_variance(A, w):
    """w (A'A)^+ w', the variance of the best estimate of w x from A x plus noise of variance 1;
    None if w is not in the row space of A, which may have any rank.
    """
    d = len(w)
    columns = list(zip(*A, strict=True))
    gram = [
        [sum(a * b for a, b in zip(one, two, strict=True)) for two in columns] for one in columns
    ]
    rows = [[*map(Fraction, row), v] for row, v in zip(gram, w, strict=True)]
    pivots = []
    for column in range(d):
        pivot = next((i for i in range(len(pivots), d) if rows[i][column] != 0), None)
        if pivot is None:
            continue
        at = len(pivots)
        rows[at], rows[pivot] = rows[pivot], rows[at]
        rows[at] = [v / rows[at][column] for v in rows[at]]
        for i in range(d):
            if i != at and rows[i][column] != 0:
                rows[i] = [a - rows[i][column] * b for a, b in zip(rows[i], rows[at], strict=True)]
        pivots.append(column)
    if any(row[d] != 0 for row in rows[len(pivots) :]):
        return None
    # Any solution u of A'A u = w' will do: the variance is w u.
    return sum((w[column] * row[d] for column, row in zip(pivots, rows, strict=False)), Fraction(0))


def contrasts(n):
    """H (r, n) of one symmetric attribute, in Python integers."""
    eye, ones = np.eye(n, dtype=object), np.ones((n, n), dtype=object)
    kind = build_contrasts(n).kind
    if kind == "sylvester":
        H, precision = hadamard(n, dtype=object)[1:], n
    elif kind == "centred":
        H, precision = n * eye - ones, n**2
    else:
        H, precision = build_contrasts(n).apply(eye, 0), n
    # All that matters of it: no totals, and the same noise on all that is left.
    assert not H.sum(axis=1).any()
    assert (n * (H.T @ H) == precision * (n * eye - ones)).all()
    return H


def nodes_of(shape, depth):
    first = shape.first[depth]
    owner = np.searchsorted(first, np.arange(shape.n), side="right") - 1
    return (np.arange(len(first))[:, None] == owner).astype(np.int64)


def branching(shape):
    """R_v (k, n) of every node that branches, in order, by the leaves that its children hold."""
    for depth in range(shape.steps):
        above, below = nodes_of(shape, depth), nodes_of(shape, depth + 1)
        for node in above:
            children = below[(below @ node) > 0]
            if len(children) > 1:
                yield children


def integer_matrix(matrix):
    """A of a tree, in Python integers, from what its numbers say it is."""
    rows = [matrix.top.matrix.astype(object) @ nodes_of(matrix.shape, 0).astype(object)]
    sums = list(branching(matrix.shape))
    given = matrix.weights if isinstance(matrix, NodeTreeMatrix) else None
    weights = iter(() if given is None else given.tolist())
    for group in matrix.shape.siblings:
        k, has_weights = group.k, group.depth < matrix.shape.steps - 1
        of_group = [
            [next(weights, 1) if has_weights else 1 for _ in range(k)] for _ in group.parents
        ]
        for v, of_node in zip(group.positions, of_group, strict=True):
            H = contrasts(k)
            if given is not None and has_weights:
                eye, ones = np.eye(k, dtype=object), np.ones((k, k), dtype=object)
                H = np.diag(np.array(of_node, dtype=object)) @ (k * eye - ones)
            rows.append(int(matrix.multipliers[v]) * H @ sums[v].astype(object))
    assert next(weights, None) is None
    return np.concatenate(rows)


def integer_basis(basis, matrix):
    """B (n, D) in Python integers, from what its index and scale say it is."""
    if basis.kind == "cells":
        return np.array([[int(c == k) for c in basis.index] for k in range(basis.size)], object)
    rows = [
        [Fraction(float(v)) * Fraction(float(s)) for v in matrix[r]]
        for r, s in zip(basis.index, basis.scale, strict=True)
    ]
    assert all(v.denominator == 1 for row in rows for v in row)
    return np.array([[int(v) for v in row] for row in rows], dtype=object)


def full_strategy(plan):
    """A, as rows of Python integers over the cells of the workload's attributes in C order: the
    mechanism is y = A x + z, in the order of its answers.
    """
    structure, domain = plan.strategy.structure, plan.domain
    if isinstance(plan.strategy, TreeIntegers):
        return write_out(plan.strategy).tolist()
    names = (*structure.block_attributes, *structure.dense)
    axes = [names.index(name) for name in plan.workload.attributes]
    A = []
    for family in plan.strategy.block_sets:
        for block, M in zip(family.blocks, family.M, strict=True):
            within = {int(a) for a in structure.blocks[block] if a >= 0}
            rows = np.ones((1, 1), dtype=object)
            for a, name in enumerate(structure.block_attributes):
                n = domain[name].size
                split = plan.strategy.find_matrix(a, int(block))
                if isinstance(split, TreeMatrix):
                    factor = integer_matrix(split)
                elif name not in structure.symmetric:
                    factor = split.matrix.astype(object)
                else:
                    factor = contrasts(n)
                rows = np.kron(rows, factor if a in within else np.ones((1, n), dtype=object))
            B = integer_basis(family.basis, structure.build_block_matrix(int(block)))
            rows = np.kron(rows, M.astype(object) @ B)
            multiples = plan.strategy.spread_multiples(int(block))
            if multiples is not None:
                rows = rows * multiples.astype(object).reshape(-1, 1)
            shaped = rows.reshape(len(rows), *get_shape(domain, names))
            ordered = shaped.transpose(0, *(axis + 1 for axis in axes))
            A += ordered.reshape(len(rows), plan.workload.cell_count).tolist()
    assert all(type(v) is int for row in A for v in row)
    return A


def assert_exact(plan):
    """rho, profile, variances and unbiasedness against the strategy written out, in rationals."""
    A = full_strategy(plan)
    cells = plan.workload.cell_count
    squares = [sum(row[i] ** 2 for row in A) for i in range(cells)]
    assert plan.rho_exact == Fraction(max(squares)) / (2 * Fraction(plan.noise_std) ** 2)
    assert plan.rho >= plan.rho_exact
    names = plan.workload.attributes
    at = tuple(slice(None) if n in names else 0 for n in plan.domain.names)
    profile = np.broadcast_to(plan.profile(), plan.domain.shape)[at].ravel()
    for square, claimed in zip(squares, profile, strict=True):
        assert Fraction(square) / Fraction(plan.noise_std) ** 2 <= Fraction(float(claimed))
    x = np.random.default_rng(1).integers(0, 50, cells)
    tables = fp.Tables(plan.domain, {t: marginal(plan, x, t) for t in plan.tables})
    answers = compute_exact_answers(plan, tables)
    assert answers.tolist() == [sum(a * int(v) for a, v in zip(row, x, strict=True)) for row in A]
    # Without noise the estimates are the answers: R A = W.
    release = fp.Release(plan=plan, answers=answers, rho=plan.rho)
    exact = plan.workload.split(plan.workload.matrix() @ x)
    for name, estimate in release.estimates.items():
        np.testing.assert_allclose(estimate, exact[name], atol=1e-6)


def marginal(plan, x, names):
    used = plan.workload.attributes
    shaped = x.reshape(plan.workload.shape)
    summed = shaped.sum(axis=tuple(i for i, n in enumerate(used) if n not in names))
    # Attributes that no query uses are summed out already.
    return summed.transpose([[n for n in used if n in names].index(n) for n in names])


def as_written(amount: float | Fraction) -> Fraction:
    """The amount that a person means by a number: by a float, the decimal that Python prints."""
    return Fraction(Decimal(repr(amount))) if isinstance(amount, float) else Fraction(amount)
