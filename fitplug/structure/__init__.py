"""Structures: what is identical by symmetry, and the blocks of Sigma that this leaves."""

from fitplug.structure.analysis import analyse_structure, check_unit
from fitplug.structure.batches import BatchedGroups, DistinctFactor, gather_tables
from fitplug.structure.cell_budgets import MAX_AXES, CellBudgets, name_cell, read_cell_budgets
from fitplug.structure.cell_classes import CellClasses, classify_cells
from fitplug.structure.chain_blocks import ChainStructure
from fitplug.structure.coefficients import check_coefficients
from fitplug.structure.matrix_blocks import MAX_ENTRIES, MatrixStructure
from fitplug.structure.node_tree import DistinctChildren, IdenticalLeaves, NodeTree, TreeStep
from fitplug.structure.objective import LARGEST_WEIGHT, Objective, check_weight
from fitplug.structure.pair_blocks import PairStructure
from fitplug.structure.person_blocks import PersonStructure
from fitplug.structure.person_records import PersonRecords, RecordSets, list_single_records
from fitplug.structure.person_trees import PersonTreeStructure
from fitplug.structure.record_moves import MoveStructure
from fitplug.structure.residual_blocks import MAX_FACTORS, ResidualStructure
from fitplug.structure.root_totals import RootTotals
from fitplug.structure.scalar_blocks import ScalarStructure
from fitplug.structure.split_pairs import SplitPairStructure
from fitplug.structure.structure import Structure, list_names
from fitplug.structure.symmetric_pairs import SymmetricPairStructure
from fitplug.structure.tree_blocks import GroupPart, TreeStructure
from fitplug.structure.tree_pairs import TreePairStructure
from fitplug.structure.tree_shape import Siblings, TreeShape
from fitplug.structure.unfolded_tree import UnfoldedSiblings

__all__ = [
    "LARGEST_WEIGHT",
    "MAX_AXES",
    "MAX_ENTRIES",
    "MAX_FACTORS",
    "BatchedGroups",
    "CellBudgets",
    "CellClasses",
    "ChainStructure",
    "DistinctChildren",
    "DistinctFactor",
    "GroupPart",
    "IdenticalLeaves",
    "MatrixStructure",
    "MoveStructure",
    "NodeTree",
    "Objective",
    "PairStructure",
    "PersonRecords",
    "PersonStructure",
    "PersonTreeStructure",
    "RecordSets",
    "ResidualStructure",
    "RootTotals",
    "ScalarStructure",
    "Siblings",
    "SplitPairStructure",
    "Structure",
    "SymmetricPairStructure",
    "TreePairStructure",
    "TreeShape",
    "TreeStep",
    "TreeStructure",
    "UnfoldedSiblings",
    "analyse_structure",
    "check_coefficients",
    "check_unit",
    "check_weight",
    "classify_cells",
    "gather_tables",
    "list_names",
    "list_single_records",
    "name_cell",
    "read_cell_budgets",
]
