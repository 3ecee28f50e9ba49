"""The certificate of siblings: it certifies the unfolded workload, which has the same optimum."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fitplug.families.base.family import Certifier, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.certificate import BlockCertifier, MatrixCertifier, PairCertifier
from fitplug.families.siblings.shape import SiblingStructure
from fitplug.numeric import FloatArray


class SiblingCertifier(Certifier[SiblingStructure]):
    """The certificate of `SiblingStructure`: p is over parents' cells, q over unfolded rows."""

    of_unfolded: ClassVar[BlockCertifier[Any]] = MatrixCertifier()

    def count_duals(self, structure: SiblingStructure) -> tuple[int, int]:
        return self.of_unfolded.count_duals(structure.unfolded)

    def lower_cost(
        self, structure: SiblingStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        return self.of_unfolded.lower_cost(structure.unfolded, objective, scale, duals)

    def share_weight(self, structure: SiblingStructure, duals: Duals) -> FloatArray:
        of_parts = self.of_unfolded.share_weight(structure.unfolded, duals)
        return np.add.reduceat(of_parts, [parts[0].group for parts in structure.parts])


class SiblingPairCertifier(SiblingCertifier):
    """The certificate of `SiblingPairStructure`: p is over kinds of pairs, or nodes."""

    of_unfolded, is_refined = PairCertifier(), False
