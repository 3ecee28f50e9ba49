"""The optimum where a record moves between cells: all pairs have weights, or only some.

The dual is that of `fitplug.solve.dual` with P = B V diag(p) V' B' in each block, where V has a
column e_i - e_j for each class of pairs. V is never formed: V diag(p) V' comes from the Laplacians
of the weights of each set D, and the profile (e_i - e_j)' G (e_i - e_j) of the pairs from the
blocks' G = B' S^-1 B (docs/theory/units.md).

If there are too many classes, only some have weights, and costly ones join them. A search starts
from cells with large weights and from cells drawn at random, and finds the cells farthest from
each, with a move's cost as the distance. Laplacians of few pairs are sparse, so an iteration takes
time in proportion to the cells in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import qr
from scipy.sparse import csr_array

from fitplug.families.base.family import PRODUCT_BOUND_MARGIN, Design
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.design.columns import ColumnProblem, design_columns
from fitplug.families.blocks.design.optimum import (
    limit_iterations,
    reduce_blocks,
    round_one_tier,
)
from fitplug.families.blocks.design.rounding import RealBlocks, choose_bases
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.neighbours import TILE, PairEnds, RecordSets
from fitplug.numeric import BoolArray, FloatArray, IndexArray
from fitplug.solve import (
    Block,
    DualValue,
    Options,
    Problem,
    Simplex,
    Solution,
    compute_mean_of_product,
    solve_dual,
)

_INDEPENDENT = 1e-3
"""The tolerance of independent weights, whose optimum costs a few parts in a thousand more."""

_WORK, _ITERATIONS = 3e12, 2000
"""The floating-point operations (less than a minute of work) for this many iterations."""

_OF_PAIR, _OF_COST = 400, 2000
"""Operations of matrix products that take as long as gathering one number of a pair in an
iteration, and as comparing one cost in a search."""

_SOLVE = 60
"""The most iterations between two searches for pairs."""

_LEAST_SHARE = 1e-6
"""Pairs with less than this share of the largest weight are dropped again."""

_SPARE = 2
"""The random cells for the first pairs, as a multiple of the dimensions of a block."""

_FIRST_PARTNERS, _PARTNERS = 4, 3
"""The partners of each cell in the first pairs, and in the pairs that a search returns."""

_SEARCHED = 4e10
"""The floating-point operations of a search for pairs."""

_MOST_WEIGHTS = 20_000_000
"""The most combinations of a pair and a query: the certificate has a number for each."""

_CHUNK = 4096
"""The number of pairs whose products are computed at once."""

_RANK = 1e-8
"""A column depends on others if its residual is below this share of the largest column."""


@dataclass(frozen=True, eq=False)
class PairCosts:
    """The costs of pairs, from products of the blocks' columns.

    Attributes:
        structure: The structure.
        columns: The transpose of w_A^1/2 F^-1 B at the nodes for each noisy block, shape (N, k).
    """

    structure: PairStructure
    columns: tuple[FloatArray, ...]

    def compute_costs(self, sets: RecordSets) -> FloatArray:
        ends = self.structure.pairs.find_ends(sets)
        of_blocks = self.structure.multiply_ratios(ends.moves)
        costs = np.zeros(len(sets))
        for A, ratios in zip(self.columns, of_blocks, strict=True):
            costs += _measure_pairs(A, ends, ratios)
        return costs

    def search(self, nodes: IndexArray, most: int) -> tuple[RecordSets, FloatArray]:
        """For each of some nodes, find the nodes to which a move costs the most.

        Args:
            nodes: The nodes, shape (n,), ascending.
            most: The number of partners of each.

        Returns:
            The pairs, and their costs, descending.
        """
        structure = self.structure
        same, other = structure.list_ratios()
        squares = np.sum([(A * A).sum(axis=1) for A in self.columns], axis=0)
        parts = []
        for region in structure.pairs.region_slices:
            size, chosen = region.stop - region.start, nodes[_lie_within(nodes, region)]
            step = max(1, TILE // (size * structure.pairs.sets))
            for start in range(0, len(chosen), step):
                at = chosen[start : start + step]
                products = structure.sum_products(
                    (A[at] @ A[region].T for A in self.columns), same, other, region
                )
                costs = squares[at, None] + squares[region] - 2 * products.min(axis=0)
                partners = np.argpartition(-costs, min(most, size) - 1, axis=1)[:, :most]
                rows = np.arange(len(at))[:, None]
                moves = products[:, rows, partners].argmin(axis=0)
                ends = np.broadcast_to(at[:, None], moves.shape), region.start + partners, moves
                parts.append([end.ravel() for end in (*ends, costs[rows, partners])])
        first, second, moves, costs = (np.concatenate(ends) for ends in zip(*parts, strict=True))
        order = np.argsort(-costs, kind="stable")
        return structure.pairs.name(first[order], second[order], moves[order]), costs[order]


@dataclass(frozen=True, eq=False)
class PairProblem(ColumnProblem[PairStructure, PairCosts]):
    """The problem for moves between cells: blocks that are matrices over nodes.

    Attributes:
        blocks: The noisy blocks, whose bases have a column for each node.
        multiples: w_A of each block.
        independent: For each block, the indices of k independent rows of its matrix.
        rows: The queries that public totals do not answer.
        generator: Draws random nodes.
    """

    structure: PairStructure
    blocks: tuple[Block, ...]
    multiples: tuple[float, ...]
    independent: tuple[IndexArray, ...]
    rows: IndexArray
    generator: np.random.Generator

    bound_margin, least_share, parts = PRODUCT_BOUND_MARGIN, _LEAST_SHARE, (1.0,)
    work_per_iteration = _WORK / _ITERATIONS

    @classmethod
    def reduce(cls, structure: PairStructure) -> PairProblem:
        """Reduce the blocks of a structure."""
        whole, independent = reduce_blocks(structure)
        rows = np.unique(np.concatenate([block.rows for block in whole]))
        cells = structure.pairs.cells
        blocks = tuple(
            replace(block, basis=block.basis[:, cells], rows=np.searchsorted(rows, block.rows))
            for block in whole
        )
        multiples = structure.subsets.profile_multiples[structure.noisy_blocks].tolist()
        generator = np.random.default_rng(0)
        return cls(structure, blocks, tuple(multiples), tuple(independent), rows, generator)

    @property
    def most(self) -> int:
        return _MOST_WEIGHTS // len(self.rows)

    @property
    def search_work(self) -> float:
        pairs, width = self.structure.pairs, sum(len(block.basis) for block in self.blocks)
        costs = float(pairs.nodes) * max(pairs.region_sizes)
        return min(costs * (2 * width * pairs.sets + _OF_COST), 2 * _SEARCHED)

    def estimate_work(self, sets: RecordSets) -> float:
        ends = self.structure.pairs.find_ends(sets)
        paired = len(np.unique(np.concatenate([ends.first, ends.second])))
        return sum(
            float(k) ** 2 * (70 * k + 4 * len(block.rows) + 4 * paired)
            + _OF_PAIR * float(k) * len(sets)
            for block in self.blocks
            for k in [len(block.basis)]
        )

    def solve(
        self,
        sets: RecordSets,
        options: Options,
        start: tuple[FloatArray, FloatArray] | None,
        simplices: Sequence[Simplex] | None = None,
    ) -> Solution:
        ends = self.structure.pairs.find_ends(sets)
        paired, inverse = np.unique(np.concatenate([ends.first, ends.second]), return_inverse=True)
        first, second = inverse.reshape(2, -1)
        within = replace(ends, first=first, second=second)
        of_blocks = self.structure.multiply_ratios(ends.moves)
        bases = [np.ascontiguousarray(block.basis[:, paired].T) for block in self.blocks]

        def evaluate(problem: Problem, p: FloatArray, q: FloatArray) -> DualValue:
            value, profile, h, whiteners = 0.0, np.zeros(len(p)), np.zeros(len(q)), []
            degrees = np.bincount(inverse, np.concatenate([p, p]), len(paired))
            for block, B, weight, ratios in zip(
                self.blocks, bases, self.multiples, of_blocks, strict=True
            ):
                moved = csr_array((p * ratios, (first, second)), shape=(len(paired),) * 2)
                P = B.T @ (degrees[:, None] * B - moved @ B - moved.T @ B)
                mean = compute_mean_of_product(weight * P, block.representation, q[block.rows])
                value += mean.value
                h[block.rows] += mean.ratios
                whiteners.append(mean.compute_whitener())
                profile += weight * _measure_pairs(B @ whiteners[-1].T, within, ratios)
            return DualValue(value, profile, h, tuple(whiteners))

        solution = solve_dual(
            Problem(len(sets), len(self.rows), ()),
            tolerance=options.tolerance,
            max_iterations=min(options.max_iterations, _SOLVE),
            progress=options.progress,
            simplices=simplices,
            start=None if start is None else (start[0], start[1][self.rows]),
            evaluate=evaluate,
        )
        q = np.zeros(self.structure.rows)
        q[self.rows] = solution.q
        return replace(solution, q=q)

    def measure(self, whiteners: Sequence[FloatArray]) -> PairCosts:
        columns = (
            math.sqrt(weight) * block.basis.T @ whitener.T
            for block, weight, whitener in zip(self.blocks, self.multiples, whiteners, strict=True)
        )
        return PairCosts(self.structure, tuple(columns))

    def find_costly(
        self, costs: PairCosts, sets: RecordSets, p: FloatArray, upper: float
    ) -> RecordSets:
        pairs, ends = self.structure.pairs, self.structure.pairs.find_ends(sets)
        n = pairs.nodes
        width = sum(A.shape[1] for A in costs.columns) + 8
        count = int(_SEARCHED / (2.0 * width * pairs.sets * max(pairs.region_sizes)))
        if count >= n:
            return costs.search(np.arange(n), _PARTNERS)[0]
        weights = np.bincount(np.concatenate([ends.first, ends.second]), np.concatenate([p, p]), n)
        heavy = np.argsort(-weights, kind="stable")[: count // 3]
        drawn = self.generator.choice(n, max(count // 3, 1), replace=False)
        named, _ = costs.search(np.unique(np.concatenate([heavy, drawn])), _PARTNERS)
        again = pairs.find_ends(named.take(np.arange(min(len(named), count // 3 + 1))))
        nodes = np.unique(np.concatenate([again.first, again.second]))
        more, _ = costs.search(nodes, _PARTNERS)
        return more.append(named).leave_out()

    def upper_cost(self, costs: PairCosts) -> tuple[float, RecordSets | None]:
        """Compute the largest cost of all pairs, up to rounding, and name costly pairs."""
        sets, squares = costs.search(np.arange(self.structure.pairs.nodes), 1)
        return float(squares[0]), sets

    def make_real_blocks(
        self, structure: PairStructure, whiteners: Sequence[FloatArray], options: Options
    ) -> list[RealBlocks]:
        node_of_cell = structure.pairs.node_of_cell
        reals = [
            (whitener @ block.basis)[:, node_of_cell]
            for whitener, block in zip(whiteners, self.blocks, strict=True)
        ]
        return choose_bases(structure, reals, self.independent)

    def list_first(self) -> RecordSets:
        """List pairs that span each block's differences, and some random pairs.

        In a block with public totals, moves from the reference cell have independent columns. In
        any other block, a move along one of its attributes with no other change is a multiple of
        its cell's column.
        """
        structure, pairs = self.structure, self.structure.pairs
        m, n = len(structure.movable), pairs.nodes
        of_region = np.zeros(len(pairs.region_sizes), dtype=np.int64)
        of_region[pairs.regions[structure.references]] = pairs.node_of_cell[structure.references]
        references = of_region[pairs.region_of_node]
        starts = np.array([region.start for region in pairs.region_slices])[pairs.region_of_node]
        sizes = pairs.region_sizes[pairs.region_of_node]
        nodes = []
        listed = []
        for number, block in zip(structure.noisy_blocks.tolist(), self.blocks, strict=True):
            spanning = _choose_spanning(block.basis, self.generator.permutation(n))
            drawn = self.generator.choice(n, min(n, _SPARE * len(block.basis)), replace=False)
            nodes.append(np.concatenate([spanning, drawn]))
            if number in structure.grounded:
                listed.append((spanning, references[spanning], np.zeros_like(spanning)))
            listed += [(spanning, spanning, np.full_like(spanning, 1 << bit)) for bit in range(m)]
        first = np.repeat(np.unique(np.concatenate(nodes)), _FIRST_PARTNERS)
        second = starts[first] + self.generator.integers(0, sizes[first])
        listed.append((first, second, self.generator.integers(0, pairs.sets, len(first))))
        first, second, moves = (np.concatenate(ends) for ends in zip(*listed, strict=True))
        changed = (first != second) | (moves > 0)
        named = structure.pairs.name(first[changed], second[changed], moves[changed])
        return named.leave_out()


def design_pairs(
    structure: PairStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the privacy cost at the targets, for classes of pairs of cells.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        WorkloadError: If the rank of a block cannot be decided.
        DesignError: If floating point cannot evaluate the dual, or integers have no room.
    """
    problem = PairProblem.reduce(structure)
    if structure.fits:
        return _design_all_pairs(problem, objective, options, loss)
    return design_columns(problem, objective, options, loss)


def _design_all_pairs(
    problem: PairProblem, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the privacy cost at the targets, with weights on all classes of pairs, or of nodes.

    Where weights are independent, no pair costs more than twice the optimum (docs/theory/units.md).
    """
    structure, pairs = problem.structure, problem.structure.pairs
    blocks = problem.blocks
    # Most blocks of children use few nodes.
    read = [np.flatnonzero(block.basis.any(axis=0)) for block in blocks]
    parts = [list(pairs.split_nodes(nodes)) for nodes in read]
    bases = [block.basis[:, nodes] for block, nodes in zip(blocks, read, strict=True)]

    def multiply(whiteners: Sequence[FloatArray]) -> list[FloatArray]:
        """Multiply the columns of strategies at the nodes of each region, by `places`."""
        sizes = pairs.region_sizes.tolist()
        products = [np.zeros((pairs.sets, size, size)) for size in sizes]
        for B, whitener, weight, place, regions in zip(
            bases, whiteners, problem.multiples, structure.places, parts, strict=True
        ):
            strategy = whitener @ B
            for region, at, here in regions:
                A = strategy[:, here]
                products[region][place][np.ix_(at, at)] += weight * (A.T @ A)
        return products

    def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        moments = structure.sum_moments(p)[0]
        value, ratios, whiteners = 0.0, np.zeros(len(q)), []
        for block, B, weight, place, regions in zip(
            blocks, bases, problem.multiples, structure.places, parts, strict=True
        ):
            moved = np.empty_like(B)
            for region, at, here in regions:
                moved[:, here] = B[:, here] @ moments[region][place][np.ix_(at, at)]
            P = weight * (moved @ B.T)
            mean = compute_mean_of_product(P, block.representation, q[block.rows])
            value += mean.value
            ratios[block.rows] += mean.ratios
            whiteners.append(mean.compute_whitener())
        profile = structure.measure_weighted(p, multiply(whiteners))
        return DualValue(value, profile, ratios, tuple(whiteners))

    most, tolerance = options.max_iterations, options.tolerance
    if structure.is_independent:
        most, tolerance = limit_iterations(blocks, pairs.nodes, most), max(tolerance, _INDEPENDENT)
    solution = solve_dual(
        Problem(structure.differences, len(problem.rows), ()),
        tolerance=tolerance,
        max_iterations=most,
        progress=options.progress,
        evaluate=evaluate,
    )
    if structure.is_independent:
        largest = structure.find_largest_cost(multiply(solution.whiteners))
        solution = replace(solution, upper=math.sqrt(largest))
    q = np.zeros(structure.rows)
    q[problem.rows] = solution.q
    real_blocks = problem.make_real_blocks(structure, solution.whiteners, options)
    solution = replace(solution, q=q)
    design = round_one_tier(structure, objective, real_blocks, solution, options, loss)
    if structure.is_independent and design.ended == "exhausted":
        return replace(design, ended="apart")  # more iterations would not bring bound and cost near
    return design


def _measure_pairs(columns: FloatArray, ends: PairEnds, ratios: FloatArray) -> FloatArray:
    """Compute |a_i|^2 + |a_j|^2 - 2 ratio a_i'a_j per pair, (v,), for nodes' columns (N, k)."""
    squares, costs = (columns * columns).sum(axis=1), np.empty(len(ratios))
    for start in range(0, len(costs), _CHUNK):
        part = slice(start, start + _CHUNK)
        i, j = ends.first[part], ends.second[part]
        products = np.einsum("vk,vk->v", columns[i], columns[j])
        costs[part] = squares[i] + squares[j] - 2 * ratios[part] * products
    return np.maximum(costs, 0.0)


def _choose_spanning(B: FloatArray, order: IndexArray) -> IndexArray:
    """Choose columns that span the columns of B (k, N), the first in `order` if they suffice."""
    rank, chosen, rest = np.zeros((len(B), 0)), [], B
    order = order[np.abs(B).sum(axis=0)[order] > 0]
    unit = float(np.sqrt((B * B).sum(axis=0)).max())
    while rank.shape[1] < len(B):
        tried = order[: 4 * len(B)]
        Q, R, pivots = qr(rest[:, tried], mode="economic", pivoting=True)
        count = int((np.abs(np.diag(R)) > _RANK * unit).sum())
        if not count:
            break
        chosen.append(tried[pivots[:count]])
        rank = np.concatenate([rank, Q[:, :count]], axis=1)
        rest = B - rank @ (rank.T @ B)
        order = np.argsort(-(rest * rest).sum(axis=0), kind="stable")
    return np.concatenate(chosen)[: len(B)]


def _lie_within(nodes: IndexArray, region: slice) -> BoolArray:
    """Tell which nodes lie in a region."""
    return np.asarray((nodes >= region.start) & (nodes < region.stop))
