"""The optimum of the dual of a tree of numbers, over all covariances.

Where one class of dense cells is asked, an evaluation of T(p, q) and of its gradient is a sweep
over numbers at each pole, linear in the nodes. So the fixed point of `fitplug.solve.dual` comes
near the weights of the optimum over all covariances, however many leaves there are. They prove the
best bound, and a covariance over the cells is found by one evaluation at them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fitplug.errors import DesignError
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.base.tree_shape import is_tree
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.tree.design.bound_gradient import evaluate_tree_bound
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import FloatArray
from fitplug.solve import DualValue, Options, Problem, solve_dual

_FEWEST_CELLS = 256
"""The optimum over fewer cells takes no time."""

_FEWEST_STEPS, _MOST_STEPS, _MOST_NODES = 8, 300, 3e7
"""Steps of an ascent, and nodes of all blocks in all steps together: they take 15 seconds."""

_SHARE = 0.5
"""The part of the tolerance that is reached: an evaluation over cells may differ a little."""


@dataclass(eq=False)
class _Ascent:
    """The ascent of T(p, q), and the best weights so far.

    Attributes:
        structure: The structure.
        objective: The objective of the design.
        value: The largest T.
        highest: The weights of the largest T.
        ratio: The least cost squared of the covariance at some weights over their T squared.
        nearest: The weights of the least ratio.
    """

    structure: TreeStructure
    objective: Objective
    value: float = 0.0
    highest: Duals = field(init=False)
    ratio: float = math.inf
    nearest: Duals = field(init=False)

    def run(self, tolerance: float, start: Duals | None, enough: float) -> None:
        """Ascend until T is enough, or the covariance of some weights is near the optimum."""
        nodes = self.structure.tree.size * len(self.structure.blocks)
        solve_dual(
            Problem(self.structure.differences, self.structure.rows, ()),
            tolerance=tolerance,
            max_iterations=max(_FEWEST_STEPS, min(_MOST_STEPS, int(_MOST_NODES / nodes))),
            progress=lambda *_: self.value >= enough,
            start=None if start is None else (start.p, start.q),
            evaluate=self._evaluate,
        )

    def _evaluate(self, _: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        # The poles of numbers have an error of their own.
        value, g, h = evaluate_tree_bound(self.structure, self.objective, p, q, 1e-4)
        ratio = float(g.max() * h.max()) / value**2
        if value > self.value:
            self.value, self.highest = value, Duals(p, q)
        if ratio < self.ratio:
            self.ratio, self.nearest = ratio, Duals(p, q)
        return DualValue(value, np.maximum(g, 0.0), np.maximum(h, 0.0), (np.eye(1),))


def ascend_number_trees(
    structure: TreeStructure, objective: Objective, start: Duals, upper: float, tolerance: float
) -> Duals:
    """Raise the lower bound of trees of numbers, as `ascend_tree_bound` does that of matrices."""
    ascent = _Ascent(structure, objective)
    ascent.run(tolerance, start, upper / (1 + tolerance))
    return ascent.highest


def find_start(
    structure: MatrixStructure, objective: Objective, options: Options
) -> tuple[FloatArray, FloatArray] | None:
    """Find weights near the optimum of a tree that is designed over its cells.

    Returns:
        Weights of the cells (D,) and of the rows (rows,), which sum to 1; None where the cells are
        few or no tree, or the weights cannot be found.
    """
    names = structure.asymmetric
    if len(names) != 1 or structure.cells < _FEWEST_CELLS or options.solver != "dual":
        return None
    if objective.budgets is not None or not is_tree(structure.workload, names[0]):
        return None
    trees = TreeStructure(
        structure.workload, structure.unit, structure.symmetric, structure.subsets, names[0], True
    )
    ascent, tree = _Ascent(trees, objective), trees.tree
    try:
        ascent.run(_SHARE * options.tolerance, None, math.inf)
    except DesignError:
        return None
    p, q = ascent.nearest.p, ascent.nearest.q
    by_node = np.zeros(tree.size)
    by_node[tree.leaves] = p
    cells = by_node / np.maximum(np.bincount(tree.leaf_nodes, minlength=tree.size), 1)
    levels = map(trees.find_level, range(len(trees.workload.groups)))
    rows = [
        (of_group / level.counts)[level.positions]
        for of_group, level in zip(np.split(q, trees.row_starts[1:-1]), levels, strict=True)
    ]
    return cells[tree.leaf_nodes], np.concatenate(rows)
