"""The table of families: the strategy and the certificate of each structure.

A new family is a package next to `blocks`, with these modules or packages of them:

    shape        a subclass of `Structure`: what is identical, and which blocks remain
    strategy     a subclass of `IntegerStrategy`: integers, proven cost and variances, answers
    certificate  a subclass of `Certifier`: the lower bound
    design       a function of the type `DesignFunction`: how the optimum is found

`analyse_structure` chooses the structure, which has one row here and one in
`fitplug.families.designs`. Designs have their own table because proofs may not import a solver.
"""

from __future__ import annotations

from fitplug.families.base.family import FAMILIES, Family
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.certificate import (
    MatrixCertifier,
    MoveCertifier,
    PairCertifier,
    PersonCertifier,
)
from fitplug.families.blocks.shape.matrices import MatrixStructure, PersonStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.strategy.differences import MoveStrategy, PairStrategy, PersonStrategy
from fitplug.families.blocks.strategy.matrices import MatrixStrategy
from fitplug.families.chain.certificate.bins import BinnedChainCertifier
from fitplug.families.chain.certificate.chains import ChainCertifier, ChainPersonCertifier
from fitplug.families.chain.certificate.pairs import ChainPairCertifier
from fitplug.families.chain.shape.bins import BinnedChainStructure
from fitplug.families.chain.shape.chains import ChainPersonStructure, ChainStructure
from fitplug.families.chain.shape.pairs import ChainPairStructure
from fitplug.families.chain.strategy.bins import BinnedChainStrategy
from fitplug.families.chain.strategy.chains import ChainStrategy
from fitplug.families.chain.strategy.pairs import ChainPairStrategy
from fitplug.families.chain.strategy.persons import ChainPersonStrategy
from fitplug.families.product.certificate.products import (
    ProductCertifier,
    ProductPairCertifier,
    ProductPersonCertifier,
)
from fitplug.families.product.shape.products import (
    ProductPairStructure,
    ProductPersonStructure,
    ProductStructure,
)
from fitplug.families.product.strategy.pairs import ProductPairStrategy
from fitplug.families.product.strategy.products import ProductPersonStrategy, ProductStrategy
from fitplug.families.siblings.certificate import SiblingCertifier, SiblingPairCertifier
from fitplug.families.siblings.shape import SiblingPairStructure, SiblingStructure, UnfoldedPairs
from fitplug.families.siblings.strategy.siblings import SiblingStrategy
from fitplug.families.tree.certificate.pairs import TreePairCertifier
from fitplug.families.tree.certificate.persons import PersonTreeCertifier
from fitplug.families.tree.certificate.trees import TreeCertifier
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.families.tree.strategy.trees import PersonTreeStrategy, TreePairStrategy, TreeStrategy

_TABLE: dict[type[Structure], Family] = {
    ChainStructure: Family(ChainStrategy, ChainCertifier()),
    BinnedChainStructure: Family(BinnedChainStrategy, BinnedChainCertifier()),
    ChainPairStructure: Family(ChainPairStrategy, ChainPairCertifier()),
    ChainPersonStructure: Family(ChainPersonStrategy, ChainPersonCertifier()),
    MatrixStructure: Family(MatrixStrategy, MatrixCertifier()),
    PairStructure: Family(PairStrategy, PairCertifier()),
    UnfoldedPairs: Family(PairStrategy, PairCertifier()),
    MoveStructure: Family(MoveStrategy, MoveCertifier()),
    PersonStructure: Family(PersonStrategy, PersonCertifier()),
    ProductStructure: Family(ProductStrategy, ProductCertifier()),
    ProductPersonStructure: Family(ProductPersonStrategy, ProductPersonCertifier()),
    ProductPairStructure: Family(ProductPairStrategy, ProductPairCertifier()),
    SiblingStructure: Family(SiblingStrategy, SiblingCertifier()),
    SiblingPairStructure: Family(SiblingStrategy, SiblingPairCertifier()),
    TreeStructure: Family(TreeStrategy, TreeCertifier()),
    TreePairStructure: Family(TreePairStrategy, TreePairCertifier()),
    PersonTreeStructure: Family(PersonTreeStrategy, PersonTreeCertifier()),
}


def register_families() -> None:
    """Register all families."""
    FAMILIES.update(_TABLE)
