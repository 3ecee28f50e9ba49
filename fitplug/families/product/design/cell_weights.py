"""Dual weights of cells, where neighbours add or remove a record.

The weights are products of weights p_a of each attribute's cells. So scale A costs prod_{a in A}
p_a'eta_a on average, and the Lagrangian's derivative with respect to Y_k is a multiple of
diag(p_a).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from fitplug.families.product.certificate.product_duals import PairWeights
from fitplug.families.product.design.attribute_covariance import AttributeCovariance
from fitplug.families.product.design.descent import DifferenceWeights, QueryAscent
from fitplug.families.product.design.members import FamilyMember
from fitplug.families.product.design.scales import (
    Profiles,
    Scales,
    VarianceMatrix,
    build_profiles,
    optimise_scales,
)
from fitplug.families.product.shape.batches import BatchedGroups
from fitplug.numeric import FloatArray, to_positions
from fitplug.solve import mix_with_uniform


@dataclass(frozen=True, eq=False)
class CellWeights(DifferenceWeights):
    """Dual weights of cells that are products over the attributes.

    Attributes:
        batched: The groups.
        cells: p_a of each attribute, shape (n_a,), summing to 1.
        eta: eta of each attribute's cells, shape (n, K) or (1, K).
    """

    are_products: ClassVar[bool] = True

    batched: BatchedGroups
    cells: tuple[FloatArray, ...]
    eta: tuple[FloatArray, ...] = ()

    def measure(self, covariances: Sequence[AttributeCovariance]) -> CellWeights:
        """Return the same weights at other covariances."""
        return replace(self, eta=tuple(covariance.compute_eta() for covariance in covariances))

    @cached_property
    def mean_eta(self) -> list[FloatArray]:
        """p'eta of each attribute's grades, shapes (K,)."""
        return [(p[:, None] * eta).sum(axis=0) for p, eta in zip(self.cells, self.eta, strict=True)]

    def average(self) -> FloatArray:
        """Return the average cost of each scale at 1, shape (count,)."""
        return np.asarray(self.batched.scales.multiply(self.mean_eta), dtype=np.float64)

    def _price(self, attribute: int, ascent: QueryAscent) -> tuple[FloatArray, FloatArray]:
        """Compute the price of p'eta of each grade, and the scales' spending on it, shapes (K,)."""
        mean = self.mean_eta[attribute]
        labels = to_positions(self.batched.scales.label(attribute))
        spent = np.bincount(labels, ascent.spent, 1 + len(mean))[1:].astype(np.float64)
        return spent / np.where(mean > 0, mean, 1.0), spent

    def _can_move(self, attribute: int) -> bool:
        """Tell whether the weights of cells can change: symmetry keeps them uniform."""
        return not self.batched.symmetric[attribute] and bool(self.mean_eta[attribute].any())

    def ascend(self, ascent: QueryAscent, mixing: float, power: float) -> CellWeights:
        """Return weights raised where cells cost more than on average."""
        cells = list(self.cells)
        for a, p in enumerate(cells):
            if self._can_move(a):
                prices, spent = self._price(a, ascent)
                above = (self.eta[a] @ prices - spent.sum()) / ascent.total
                grown = p * (1 + above) ** power
                cells[a] = mix_with_uniform(grown / grown.sum(), mixing)
        return replace(self, cells=tuple(cells))

    def compute_moments(self, attribute: int, ascent: QueryAscent) -> list[FloatArray]:
        """Return the diagonal of P_k of each grade."""
        if not self._can_move(attribute):
            return []
        prices, _ = self._price(attribute, ascent)
        return [price * self.cells[attribute] for price in prices.tolist()]

    def scale(
        self, rows: VarianceMatrix, tolerance: float, near: FamilyMember | None
    ) -> tuple[Scales, Profiles]:
        """Find the best scales for the covariances, and the costs of cells."""
        profiles = build_profiles(self.batched.scales, self.eta)
        known = None if near is None else near.scales
        return optimise_scales(rows, profiles, tolerance=tolerance / 4, near=known), profiles

    def refine(self, profiles: Profiles) -> CellWeights:
        """Return the weights unchanged: each step raises the weights of all cells."""
        return self

    def share(self) -> CellWeights:
        """Return the weights unchanged: the product bound can use them."""
        return self

    def list_weights(self) -> tuple[tuple[FloatArray, ...], PairWeights | None]:
        """List the weights of cells."""
        return self.cells, None
