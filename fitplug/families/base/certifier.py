"""Certifiers: what proofs need to know of one structure.

Each structure has one implementation, registered in `fitplug.families.registry`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, NamedTuple, TypeVar

from fitplug.certify import LowerBoundAt, Tier, TierClaims, certify_tiers
from fitplug.families.base.objective import Objective
from fitplug.families.base.structure import Structure
from fitplug.numeric import FloatArray

S = TypeVar("S", bound=Structure)


class Frame(NamedTuple):
    """How the norm of a product is pinched; see `product.certificate.product_bound`.

    Attributes:
        columns: The most columns of an attribute's frame.
        rests: The most rests of an attribute, of each kind.
        tilt: The weight of the first column against the others.
    """

    columns: int
    rests: int
    tilt: float


NO_FRAME = Frame(0, 0, 0.0)
"""Where nothing is pinched: the norm is computed from the blocks."""


class Duals(NamedTuple):
    """The dual weights that prove a lower bound.

    Attributes:
        p: The weights of the differences between neighbours, shape (|V|,). In the product family,
            a product: the weights of each attribute's cells, one attribute after another.
        q: The weights of the structure's rows, shape (rows,). In the product family, a product:
            the weights of the groups, then of the rows of each distinct factor.
        frame: How the norm is pinched in the product family; `NO_FRAME` for other structures.
    """

    p: FloatArray
    q: FloatArray
    frame: Frame = NO_FRAME


class Certifier(ABC, Generic[S]):
    """The certificate of one structure. It trusts neither a solver nor the weights it is given.

    Attributes:
        takes_objectives: Whether it bounds objectives with cell budgets or a total squared error,
            and not the plain privacy cost alone.
        has_frame: Whether its dual weights have a frame.
    """

    takes_objectives: ClassVar[bool] = False
    has_frame: ClassVar[bool] = False

    @abstractmethod
    def count_duals(self, structure: S) -> tuple[int, int]:
        """Count the numbers in p and in q."""

    @abstractmethod
    def lower_cost(self, structure: S, objective: Objective, scale: float, duals: Duals) -> float:
        """Bound the objective at scale * targets from below, rounding included.

        Args:
            structure: The structure.
            objective: The objective, in units of scale * targets.
            scale: The factor on all targets.
            duals: Any dual weights of the sizes that `count_duals` gives.

        Returns:
            The lower bound.

        Raises:
            ValueError: If the dual weights are not of the structure's shapes, or are negative, not
                finite or all zero.
        """

    @abstractmethod
    def share_weight(self, structure: S, duals: Duals) -> FloatArray:
        """Compute the share of each group in the sum of q, shape (groups,)."""

    def certify_tiers(self, claims: TierClaims, lower_bound_at: LowerBoundAt) -> Iterator[Tier]:
        """Certify the level of each tier; see `fitplug.certify.tiers.certify_tiers`."""
        return certify_tiers(claims, lower_bound_at)
