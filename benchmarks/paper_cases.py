"""The cases of the paper's experiments: workloads with their targets, and the paper's figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Made = tuple[Matrix, Matrix]

SEED = 20261120


@dataclass(frozen=True)
class Case:
    """One case of a table.

    Attributes:
        name: The name of the row.
        cells: The number of cells.
        make: A function that returns W and the targets.
        figures: The paper's ratios of IP, HM and CA, and of wCA-I and wCA-II if they differ; or its
            times of SM-II and GD.
        sse: The paper's total variance over that of CA.
        drawn: Whether the queries are drawn at random.
    """

    name: str
    cells: int
    make: Callable[[], Made]
    figures: str = ""
    sse: str = ""
    drawn: bool = False


def prefix(d: int) -> Made:
    return np.tri(d), np.ones(d)


def identity_and_sum(d: int, k: float) -> Made:
    return np.vstack([np.eye(d), np.ones(d)]), np.append(np.ones(d), k)


def pl94() -> Made:
    age, ethnicity, race = np.indices((2, 2, 63)).reshape(3, 252)
    margins = [np.arange(n)[:, None] == of for of, n in ((age, 2), (ethnicity, 2), (race, 63))]
    return np.vstack([*margins, np.eye(252)]), np.ones(319)


def ages() -> Made:
    asked = np.vstack([np.tri(116), np.arange(116) >= 18])
    return np.kron([[1, 0], [0, 1], [1, 1]], asked), np.ones(351)


def marginals(t: int) -> Made:
    a, b, c = np.indices((t, t, t)).reshape(3, t**3)
    one = [np.arange(t)[:, None] == of for of in (a, b, c)]
    two = [np.arange(t * t)[:, None] == of for of in (a * t + b, a * t + c, b * t + c)]
    return np.vstack([*one, *two]).astype(float), np.ones(3 * t + 3 * t * t)


def drawn_queries(kind: str, d: int, loosest: float) -> Made:
    """Draw queries with targets from U(1, loosest).

    kind is "related", "ranges", or the probability of +1 in place of -1.
    """
    rng, cell = np.random.default_rng([SEED, d]), np.arange(d)
    if kind == "related":
        W = rng.normal(size=(d // 2, d // 2)) @ rng.normal(size=(d // 2, d))
    elif kind == "ranges":
        ends = np.sort(rng.integers(0, d, (2 * d, 2)), axis=1)
        W = ((ends[:, :1] <= cell) & (cell <= ends[:, 1:])).astype(float)
    else:
        W = np.where(rng.random((2 * d, d)) < float(kind), 1.0, -1.0)
    return W, rng.uniform(1, loosest, len(W))
