"""The product family: several attributes that are not symmetric, whose product is too large.

Every attribute a of n cells has a reference u_a (1'u_a = 1) and covariances C_ak on its contrasts
(C_ak 1 = 0) with precisions Y_ak (Y_ak u_a = 0), one for each of its grades k = 1 to K_a. For the
subsets A of the groups' attributes, and the tuples k of grades of the attributes in A,

    profile(i) = sum_A sum_k z_k^-1 prod_{a in A} eta_ak(i_a)                   eta = diag Y
    variance(S, j)
        = sum_{A in S} sum_k z_k prod_{a in A} gamma_ak(j_a) prod_{a in S - A} mu_a(j_a)^2

with gamma = w'C_ak w and mu = w'u_a of a factor's row w. Nothing has the size of the product: with
K_a = 1 the largest profile is at the largest eta_a. A symmetric attribute has u = 1/n, K = 1 and
C = I - J/n. Other covariances may be better: the certified gap says by how much
(docs/theory/product-family.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fitplug.domain import suggest_fewer_cells
from fitplug.errors import WorkloadError
from fitplug.families.base.structure import Structure, list_names
from fitplug.families.base.tree_shape import find_tree_levels
from fitplug.families.product.shape.batches import BatchedGroups, batch_groups
from fitplug.families.product.shape.grades import find_grades, leave_undivided
from fitplug.numeric import FloatArray, frozen_property

MAX_ROWS = 20_000_000
"""Most rows of a structure of the product family."""

MAX_FACTORS = 1e10
"""Largest sum of r n min(r, n) over the factors (r, n) of attributes that are not symmetric: about
a minute of singular values."""


@dataclass(frozen=True, eq=False)
class ProductStructure(Structure):
    """Blocks over the subsets of all attributes, each a number z_k for each tuple k of grades.

    Attributes:
        graded: Whether attributes may have several grades.
    """

    graded: bool = True

    def __str__(self) -> str:
        split = f"{len(self.asymmetric)} attributes split ({list_names(self.asymmetric)})"
        return f"{split}: the best of the product family, {len(self.blocks):,} blocks"

    @property
    def block_attributes(self) -> tuple[str, ...]:
        return self.workload.attributes

    @property
    def dense(self) -> tuple[str, ...]:
        return ()

    @property
    def names_in_files(self) -> Mapping[str, tuple[str, ...]]:
        return {"dense": (), "ordered": self.asymmetric}

    @property
    def holds_optimum(self) -> bool:
        return False

    @property
    def remedy(self) -> str:
        names = self.asymmetric
        fewer = "" if len(names) == 1 else f"ask fewer of {list_names(names)} together, or "
        return f"for the optimum, {fewer}take {suggest_fewer_cells(self.workload.domain, names)}"

    def check_size(self) -> None:
        domain, names = self.workload.domain, self.asymmetric
        if self.rows > MAX_ROWS:
            raise WorkloadError(
                f"the workload has {self.rows} queries of {', '.join(names)}, and up to "
                f"{MAX_ROWS} can be designed for: use fewer of them together, or "
                + suggest_fewer_cells(domain, names)
            )
        if (work := self._estimate_work()) > MAX_FACTORS:
            raise WorkloadError(
                f"the attributes {', '.join(names)} have too many cells, or are asked too many "
                f"different queries, that tell their cells apart: {work:.1e} operations an "
                f"iteration, and up to {MAX_FACTORS:.0e} can be waited for: use fewer of them, or "
                + suggest_fewer_cells(domain, names)
            )

    def build_block_matrix(self, block: int) -> FloatArray:
        return np.ones((1, 1))

    def find_rows(self, block: int, group: int) -> slice:
        return slice(0, 1)

    @frozen_property
    def batched(self) -> BatchedGroups:
        """The groups in batches whose tables have equal shapes."""
        undivided = (leave_undivided(self.subsets),) * len(self.block_attributes)
        return batch_groups(self, find_grades(self) if self.graded else undivided)

    def _estimate_work(self) -> float:
        """Estimate the operations that the singular values of all different factors take."""
        work: dict[tuple[object, ...], float] = {}
        trees = {name for name in self.asymmetric if find_tree_levels(self.workload, name)}
        for factor in self.workload.groups.factors:
            if factor.attribute in self.asymmetric and factor.attribute not in trees:
                given = factor.cells if factor.array is None else factor.array
                n, r = float(factor.size), float(factor.rows)
                key = (factor.attribute, factor.kind, id(given) if given is not None else None)
                work[key] = r * n * min(r, n)
        return sum(work.values())
