"""Extended precision, as a reference for what is computed in floats."""

from __future__ import annotations

import numpy as np

LONG = np.longdouble


def singular_values(X):
    """One-sided Jacobi in extended precision: accurate to the last digits, whatever the grading."""
    X = np.array(X if X.shape[0] >= X.shape[1] else X.T, dtype=LONG)
    n, negligible = X.shape[1], np.finfo(LONG).eps ** 2 * (X * X).sum()
    for _ in range(60):
        largest = LONG(0)
        for i in range(n):
            for j in range(i):
                a, b, c = X[:, i] @ X[:, i], X[:, j] @ X[:, j], X[:, i] @ X[:, j]
                if abs(c) <= np.finfo(LONG).eps * np.sqrt(a * b) or min(a, b) <= negligible:
                    continue
                largest = max(largest, abs(c) / np.sqrt(a * b))
                zeta = (b - a) / (2 * c)
                tangent = (1 if zeta >= 0 else -1) / (abs(zeta) + np.sqrt(1 + zeta * zeta))
                cosine = 1 / np.sqrt(1 + tangent * tangent)
                X[:, i], X[:, j] = (
                    cosine * (X[:, i] - tangent * X[:, j]),
                    cosine * (tangent * X[:, i] + X[:, j]),
                )
        if largest <= 8 * np.finfo(LONG).eps:
            return np.sqrt((X * X).sum(axis=0))
    raise AssertionError("Jacobi did not converge")
