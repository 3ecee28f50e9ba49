"""The matrices of small tree blocks, written out over the cells of the tree and the dense cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.linalg import block_diag

from fitplug.families.base.dense_mechanism import BlockCovariance
from fitplug.families.tree.integers.blocks import TreeBlock
from fitplug.families.tree.integers.child_matrices import LeafMatrices
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import AnyArray, FloatArray, IntArray
from fitplug.workload import CellClasses


def list_matrices(
    structure: TreeStructure, tree_blocks: Sequence[TreeBlock]
) -> Iterator[tuple[int, FloatArray]]:
    """List what each block measures of the cells, shape (answers, cells)."""
    rows = _build_rows(structure)
    for own in tree_blocks:
        classes = structure.classes[own.block]
        measured = structure.find_totals(own.block).measured
        root = np.zeros((len(measured), classes[0].size), dtype=np.int64)
        root[:, measured] = own.root
        parts: list[AnyArray] = [_multiply(rows[:1], root, classes[0])]
        for siblings, matrices in own.list_siblings(structure.unfolded, rows.shape[1]):
            of_children = matrices.take(siblings.positions, siblings.children.shape[1])
            A = of_children.write_out() @ rows[siblings.children]
            dense = matrices.dense[siblings.positions]
            of_depth = classes[siblings.depth]
            parts += [_multiply(*pair, of_depth) for pair in zip(A, dense, strict=True)]
        yield own.block, np.concatenate(parts)


def list_covariances(
    structure: TreeStructure, tree_blocks: Sequence[TreeBlock], noise_std: float
) -> Iterator[BlockCovariance]:
    """List a basis of what each block measures, and the covariance of the noise on it."""
    rows = _build_rows(structure)
    for own in tree_blocks:
        classes = structure.classes[own.block]
        measured = structure.find_totals(own.block).measured
        bases: list[IntArray] = [np.kron(rows[:1], _build_indicator(classes[0])[measured])]
        covariances: list[FloatArray] = [own.root_inverse @ own.root_inverse.T]
        for siblings, matrices in own.list_siblings(structure.unfolded, rows.shape[1]):
            of_children = matrices.take(siblings.positions, siblings.children.shape[1])
            k = siblings.children.shape[1]
            B = of_children.write_out()[:, : k - 1]
            # Where contrasts have more rows than they need, those that are left are combinations.
            estimate = np.eye(k - 1)[None]
            if isinstance(of_children, LeafMatrices):
                identity = np.tile(np.eye(of_children.rows), (len(B), 1, 1))
                estimate = B @ of_children.invert(identity)
            of_nodes = estimate @ estimate.swapaxes(1, 2)
            C = _build_indicator(classes[siblings.depth])
            for i, position in enumerate(siblings.positions.tolist()):
                X = matrices.dense_inverses[0][position]
                bases.append(np.kron(B[i] @ rows[siblings.children[i]], C))
                covariances.append(np.kron(of_nodes[min(i, len(of_nodes) - 1)], X @ X.T))
        yield own.block, np.concatenate(bases), noise_std**2 * block_diag(*covariances)


def _build_rows(structure: TreeStructure) -> IntArray:
    """Build the rows of the unfolded tree as sums of cells of the attribute, (rows, n)."""
    tree, unfolded = structure.tree, structure.unfolded
    n = len(tree.leaf_nodes)
    found = np.zeros((unfolded.size, n), dtype=np.int64)
    lengths = np.diff(tree.starts, append=n)
    found[np.repeat(unfolded.leaves, lengths), np.arange(n)] = 1
    for siblings in reversed(unfolded.siblings):
        found[siblings.parents] = found[siblings.children].sum(axis=1)
    return found


def _build_indicator(classes: CellClasses) -> IntArray:
    """Build C, which sums the dense cells of each class, shape (r, D)."""
    found = np.zeros((classes.size, len(classes.of_cell)), dtype=np.int64)
    kept = np.flatnonzero(classes.of_cell >= 0)
    found[classes.of_cell[kept], kept] = 1
    return found


def _multiply(rows: IntArray, dense: IntArray, classes: CellClasses) -> FloatArray:
    """Multiply out rows (r, n) of the tree by a matrix over classes of the dense cells."""
    of_cells = dense.astype(np.float64) @ _build_indicator(classes)
    return np.asarray(np.kron(rows.astype(np.float64), of_cells), dtype=np.float64)
