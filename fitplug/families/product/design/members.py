"""Members of the product family: covariances of several attributes that are never written down.

A member has a reference u_a and a covariance C_a for each attribute a (`AttributeCovariance`), and
a scale z_A for each block A, a subset of the attributes. See docs/theory/product-family.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from fitplug.families.product.design.attribute_covariance import AttributeCovariance
from fitplug.families.product.design.scales import Scales
from fitplug.families.product.shape.batches import BatchedGroups
from fitplug.numeric import FloatArray


@dataclass(frozen=True, eq=False)
class FamilyWeights:
    """Dual weights of the product family, which are products over the attributes.

    Attributes:
        cells: p_a of each attribute, shape (n_a,), summing to 1.
        queries: For each batch q of its groups' rows, in the shape of the batch's targets. It has
            one entry along attributes where targets do not vary. All together sum to 1.
        shares: For each factor how q is spread over its rows where targets do not vary, shape (r,),
            summing to 1.
    """

    cells: tuple[FloatArray, ...]
    queries: tuple[FloatArray, ...]
    shares: tuple[FloatArray, ...]


@dataclass(frozen=True, eq=False)
class FamilyMember:
    """A member of the family that meets every target.

    Attributes:
        batched: The groups of the workload.
        covariances: The covariance of each attribute.
        scales: The best scales for these covariances.
        weights: The dual weights at the end of the descent.
        iterations: The iterations of the descent.
        stopped: Whether the progress callback asked to stop.
    """

    batched: BatchedGroups
    covariances: tuple[AttributeCovariance, ...]
    scales: Scales
    weights: FamilyWeights
    iterations: int = 0
    stopped: bool = False

    @property
    def upper(self) -> float:
        """The privacy cost."""
        return self.scales.upper
