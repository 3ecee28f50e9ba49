"""The certificate of siblings: the unfolded workload's, as both have the same optimum."""

from __future__ import annotations

import numpy as np

from fitplug.families.base.family import Certifier, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.certificate import MatrixCertifier
from fitplug.families.siblings.shape import SiblingStructure
from fitplug.numeric import FloatArray

_MATRICES = MatrixCertifier()


class SiblingCertifier(Certifier[SiblingStructure]):
    """The certificate of `SiblingStructure`: p is over the parents' cells, q over unfolded rows."""

    def count_duals(self, structure: SiblingStructure) -> tuple[int, int]:
        return _MATRICES.count_duals(structure.unfolded)

    def lower_cost(
        self, structure: SiblingStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        return _MATRICES.lower_cost(structure.unfolded, objective, scale, duals)

    def share_weight(self, structure: SiblingStructure, duals: Duals) -> FloatArray:
        of_parts = _MATRICES.share_weight(structure.unfolded, duals)
        return np.add.reduceat(of_parts, [parts[0].group for parts in structure.parts])
