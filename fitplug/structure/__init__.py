"""Structures: what is identical by symmetry, and the blocks of Sigma that this leaves."""

from fitplug.structure.analysis import MAX_ENTRIES, MAX_FACTORS, analyse_structure
from fitplug.structure.batches import BatchedGroups, DistinctFactor, batch_groups, gathered
from fitplug.structure.cell_budgets import MAX_AXES, CellBudgets, cell_name, read_cell_budgets
from fitplug.structure.objective import LARGEST_WEIGHT, Objective, check_weight
from fitplug.structure.structure import Piece, Structure, check_coefficients, dense_piece, listed
from fitplug.structure.tree_shape import Siblings, TreeShape

__all__ = [
    "LARGEST_WEIGHT",
    "MAX_AXES",
    "MAX_ENTRIES",
    "MAX_FACTORS",
    "BatchedGroups",
    "CellBudgets",
    "DistinctFactor",
    "Objective",
    "Piece",
    "Siblings",
    "Structure",
    "TreeShape",
    "analyse_structure",
    "batch_groups",
    "cell_name",
    "check_coefficients",
    "check_weight",
    "dense_piece",
    "gathered",
    "listed",
    "read_cell_budgets",
]
