"""From a structure of blocks to the problem that the solvers see (docs/theory/symmetry.md)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.shape.scalars import ScalarStructure
from fitplug.numeric import FloatArray, IndexArray
from fitplug.solve import Problem, ScalarBlocks, reduce_block


def reduce_scalars(structure: ScalarStructure, budgets: FloatArray | None) -> Problem:
    """Reduce blocks that are numbers.

    Args:
        structure: The structure of a workload.
        budgets: The largest profile allowed, shape (1,), or None.

    Returns:
        The problem.
    """
    incidence = csr_array(structure.incidence / structure.targets[:, None])
    multiples = structure.subsets.profile_multiples
    scalars = ScalarBlocks(multiples, incidence, csr_array(incidence.T))
    problem = Problem(1, structure.rows, (scalars,))
    return problem if budgets is None else problem.divide_profile(budgets)


def reduce_matrices(
    structure: MatrixStructure, budgets: FloatArray | None
) -> tuple[Problem, list[IndexArray]]:
    """Reduce blocks that are matrices.

    Args:
        structure: The structure of a workload.
        budgets: The largest profile allowed for each cell, shape (d,), or None.

    Returns:
        The problem, and for each block k linearly independent rows of its matrix.

    Raises:
        WorkloadError: If the rank of a block cannot be decided.
    """
    c = structure.targets
    blocks, independent = [], []
    for queries in structure.gather_all_queries():
        matrix = queries.matrix
        matrix = matrix if budgets is None else matrix / np.sqrt(budgets)
        block, rows = reduce_block(matrix, c[queries.rows] / queries.variance_multiples)
        basis = block.basis * np.sqrt(queries.profile_multiple)
        blocks.append(replace(block, basis=basis, rows=queries.rows))
        independent.append(rows)
    return Problem(structure.cells, structure.rows, tuple(blocks)), independent
