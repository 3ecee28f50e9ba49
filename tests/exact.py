"""Exact rational linear algebra, for small cases only: what the tests hold floats against."""

from __future__ import annotations

from fractions import Fraction


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
        found = next((i for i in range(at, d) if rows[i][column] != 0), None)
        assert found is not None, "A has not full row rank"
        rows[at], rows[found] = rows[found], rows[at]
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


def product(M, B):
    return [
        [
            sum((m * b for m, b in zip(row, column, strict=True)), Fraction(0))
            for column in zip(*B, strict=True)
        ]
        for row in M
    ]
