"""The table of families: of each structure, its strategies and its certificate."""

from __future__ import annotations

from fitplug.families.base.family import FAMILIES, Family
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.certificate import (
    MatrixCertifier,
    MoveCertifier,
    PairCertifier,
    PersonCertifier,
)
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.shape.persons import PersonStructure
from fitplug.families.blocks.strategy.differences import MoveForm, PairForm, PersonForm
from fitplug.families.blocks.strategy.matrices import MatrixForm
from fitplug.families.chain.certificate import ChainCertifier
from fitplug.families.chain.shape import ChainStructure
from fitplug.families.chain.strategy.chains import ChainForm
from fitplug.families.product.certificate.pairs import ProductPairCertifier
from fitplug.families.product.certificate.products import ProductCertifier
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.families.product.shape.products import ProductStructure
from fitplug.families.product.strategy.pairs import ProductPairForm
from fitplug.families.product.strategy.products import ProductForm
from fitplug.families.tree.certificate.pairs import TreePairCertifier
from fitplug.families.tree.certificate.persons import PersonTreeCertifier
from fitplug.families.tree.certificate.trees import TreeCertifier
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.families.tree.strategy.forms import PersonTreeForm, TreeForm, TreePairForm

_TABLE: dict[type[Structure], Family] = {
    ChainStructure: Family(ChainForm(), ChainCertifier()),
    MatrixStructure: Family(MatrixForm(), MatrixCertifier()),
    PairStructure: Family(PairForm(), PairCertifier()),
    MoveStructure: Family(MoveForm(), MoveCertifier()),
    PersonStructure: Family(PersonForm(), PersonCertifier()),
    ProductStructure: Family(ProductForm(), ProductCertifier()),
    ProductPairStructure: Family(ProductPairForm(), ProductPairCertifier()),
    TreeStructure: Family(TreeForm(), TreeCertifier()),
    TreePairStructure: Family(TreePairForm(), TreePairCertifier()),
    PersonTreeStructure: Family(PersonTreeForm(), PersonTreeCertifier()),
}


def register_families() -> None:
    """Register all families. A new structure is a row of the table, and one of `designs`."""
    FAMILIES.update(_TABLE)
