"""Structures: what is identical by symmetry, and the blocks of Sigma that this leaves."""

from fitplug.structure.analysis import analyse_structure
from fitplug.structure.batches import BatchedGroups, DistinctFactor, gather_tables
from fitplug.structure.cell_budgets import MAX_AXES, CellBudgets, name_cell, read_cell_budgets
from fitplug.structure.chain_blocks import ChainStructure
from fitplug.structure.coefficients import check_coefficients
from fitplug.structure.matrix_blocks import MAX_ENTRIES, MatrixStructure
from fitplug.structure.objective import LARGEST_WEIGHT, Objective, check_weight
from fitplug.structure.residual_blocks import MAX_FACTORS, ResidualStructure
from fitplug.structure.scalar_blocks import ScalarStructure
from fitplug.structure.structure import Structure, list_names
from fitplug.structure.tree_shape import Siblings, TreeShape

__all__ = [
    "LARGEST_WEIGHT",
    "MAX_AXES",
    "MAX_ENTRIES",
    "MAX_FACTORS",
    "BatchedGroups",
    "CellBudgets",
    "ChainStructure",
    "DistinctFactor",
    "MatrixStructure",
    "Objective",
    "ResidualStructure",
    "ScalarStructure",
    "Siblings",
    "Structure",
    "TreeShape",
    "analyse_structure",
    "check_coefficients",
    "check_weight",
    "gather_tables",
    "list_names",
    "name_cell",
    "read_cell_budgets",
]
