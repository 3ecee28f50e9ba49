"""Dual weights of moves between cells, where neighbours replace a record and some cells are leaves.

A record moves along the attributes of a move t, which has weight r_t. The cells before and after
are drawn independently by the weights p_a of each of these attributes, and again if they are the
same. In the other attributes both are one cell, drawn by p_a. So scale A costs on average

    sum_t r_t 2 (1 - prod_{a in A and t} K_a) prod_{a in A} p_a'eta_a

where K_a, the mean of Y_ij over that of Y_ii, is taken as -s / (1 - s), s = sum p_a^2, for the
probability s that both cells are the same. It is this for a symmetric attribute. Where the nodes of
a tree are grades, a move leads from one child of a node to another: K_a is 1 for the nodes above,
-1 / (k - 1) for this node of k children, and 0 below.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from fitplug.families.product.certificate.product_duals import PairWeights
from fitplug.families.product.certificate.products import count_sides
from fitplug.families.product.design.attribute_covariance import AttributeCovariance
from fitplug.families.product.design.cell_weights import MixedCells, MixedProfiles
from fitplug.families.product.design.members import FamilyMember
from fitplug.families.product.design.pair_profiles import ScaleProducts
from fitplug.families.product.design.scales import (
    Profiles,
    Scales,
    VarianceMatrix,
    build_profiles,
    optimise_scales,
)
from fitplug.families.product.shape.products import ProductPairStructure
from fitplug.numeric import FloatArray, IntArray

_MOST_SCALED, _LEAST = 2, 1e-3
"""The most moves that enter the choice of scales, and their least share of the largest."""

_LARGEST = 2.0**100
"""The largest eta: an attribute whose covariance shrinks in each step would overflow."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MovedCells(MixedCells):
    """Dual weights of moves.

    Attributes:
        structure: The structure.
        moves: The depth at which the cells of each move part in each attribute, 0 where it has no
            grades by node, and -1 where it does not change, shape (t, attributes).
    """

    # Covariances follow each step: the mean costs of moves change with the weights of cells.
    are_products: ClassVar[bool] = False

    structure: ProductPairStructure
    moves: IntArray

    @classmethod
    def spread(cls, structure: ProductPairStructure, cells: tuple[FloatArray, ...]) -> MovedCells:
        """Give all moves equal weights."""
        trees = [grades.tree for grades in structure.batched.grades]
        depths = [range(1 if tree is None else tree.steps) for tree in trees]
        moves = np.array(
            [
                move
                for moved in np.unique(structure.moves, axis=0)[::-1]
                for move in itertools.product(
                    *(ways if one else [-1] for ways, one in zip(depths, moved, strict=True))
                )
            ]
        )
        shares = np.full(len(moves), 1 / len(moves))
        return cls(structure.batched, cells, structure=structure, moves=moves, shares=shares)

    def measure(self, covariances: Sequence[AttributeCovariance]) -> MovedCells:
        """Return the same weights at other covariances.

        Raises:
            LinAlgError: If these have left all scales behind, which ends the descent.
        """
        measured = replace(self, eta=super().measure(covariances).eta)
        if max(float(eta.max(initial=0.0)) for eta in measured.eta) > _LARGEST:
            raise np.linalg.LinAlgError("the covariances are too small")
        return measured

    @cached_property
    def multiples(self) -> FloatArray:
        """The mean cost of each move over that of a cell at each scale, shape (t, count)."""
        tables = []
        for a, (p, n) in enumerate(zip(self.cells, self.batched.sizes, strict=True)):
            depths, grades = self.moves[:, a], self.batched.grades[a]
            table = np.ones((len(depths), 1 + grades.count))
            if grades.tree is None:
                same = 1 / n if self.batched.symmetric[a] else float(p @ p)
                table[depths >= 0, 1:] = max(-same / (1 - same), -1.0) if same < 1 else 0.0
            else:
                below = grades.tree.branching_depths - depths[:, None]
                apart = -1 / (grades.tree.branching_children - 1)
                inner = np.where(below > 0, 0.0, np.where(below == 0, apart, 1.0))
                table[:, 1:] = np.where(depths[:, None] < 0, 1.0, inner)
            tables.append(table)
        scales = ScaleProducts(self.structure)
        return 2 * (1 - scales.multiply(tables)) * scales.is_noisy

    def scale(
        self, rows: VarianceMatrix, tolerance: float, near: FamilyMember | None
    ) -> tuple[Scales, Profiles]:
        """Find the best scales for the covariances, and the mean costs of moves."""
        cells = build_profiles(self.batched.scales, self.eta)
        # Moves that cost less than others lose their shares.
        listed = np.argsort(-self.shares, kind="stable")[:_MOST_SCALED]
        listed = listed[self.shares[listed] > _LEAST * self.shares.max()]
        profiles = MixedProfiles(cells, self.multiples[np.sort(listed)])
        known = None if near is None else near.scales
        return optimise_scales(rows, profiles, tolerance=tolerance, near=known), profiles

    def list_weights(self) -> tuple[tuple[FloatArray, ...], PairWeights | None]:
        """List the weights of cells and of moves."""
        structure, ways = self.structure, np.minimum(self.moves, 0) + 1
        for a, grades in enumerate(self.batched.grades):
            if grades.tree is not None:
                ways[:, a] += self.moves[:, a] == grades.tree.steps - 1
        listed = (structure.moves.astype(np.int64) + structure.near).tolist()
        shares = np.zeros(len(listed))
        for way, share in zip(ways.tolist(), self.shares.tolist(), strict=True):
            shares[listed.index(way)] += share
        sides = tuple(np.zeros(n) for n in count_sides(structure).tolist())
        return self.cells, PairWeights(structure.moves, structure.near, shares, sides)
