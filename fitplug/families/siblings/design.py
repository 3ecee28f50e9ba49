"""The optimum of siblings, which the unfolded workload has, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.family import Design
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.design.optimum import design_matrices
from fitplug.families.blocks.design.pairs import design_pairs
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.strategy.matrices import MatrixStrategy
from fitplug.families.siblings.shape import SiblingStructure
from fitplug.families.siblings.strategy.siblings import SiblingStrategy
from fitplug.solve import Options


def design_siblings(
    structure: SiblingStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the privacy cost at the targets; see `design_matrices` and `design_pairs`."""
    solve: Any = design_pairs if isinstance(structure.unfolded, PairStructure) else design_matrices
    design = solve(structure.unfolded, objective, options, loss)
    unfolded = design.strategy
    assert isinstance(unfolded, MatrixStrategy)
    strategy = SiblingStrategy(
        structure,
        make_contrasts(structure),
        unfolded.sensitivity_squared,
        unfolded.column_squares,
        unfolded.unit_variances[structure.unfolded_rows],
        unfolded.max_records,
        unfolded,
    )
    return replace(design, strategy=strategy)
