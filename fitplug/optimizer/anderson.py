"""Anderson acceleration (type II) of a fixed-point iteration."""

from __future__ import annotations

import numpy as np

from fitplug.numeric import FloatArray


class Anderson:
    """Extrapolates x <- x + f(x) from the last `window` steps.

    The least-squares fit of the residuals is weighted, so that coordinates that do not matter
    (here: weights near zero, known on a log scale only) do not steer it.
    """

    def __init__(self, window: int = 12, ridge: float = 1e-8) -> None:
        self._window = window
        self._ridge = ridge
        self._points: list[FloatArray] = []
        self._residuals: list[FloatArray] = []

    def forget(self) -> None:
        """Drop the history, after a step that led astray."""
        self._points.clear()
        self._residuals.clear()

    def step(self, x: FloatArray, residual: FloatArray, weight: FloatArray) -> FloatArray:
        """The step to take from x (n,), given f(x) = `residual` and weights, both (n,)."""
        self._points.append(x)
        self._residuals.append(residual)
        if len(self._points) > self._window + 1:
            del self._points[0], self._residuals[0]
        if len(self._points) == 1:
            return residual
        dx = np.diff(np.array(self._points), axis=0)
        df = np.diff(np.array(self._residuals), axis=0)
        weighted = df * weight
        gram = weighted @ weighted.T
        gram[np.diag_indices_from(gram)] += self._ridge * np.trace(gram) + np.finfo(float).tiny
        try:
            fit = np.linalg.solve(gram, weighted @ (residual * weight))
        except np.linalg.LinAlgError:
            self.forget()
            return residual
        return np.asarray(residual - (dx + df).T @ fit)
