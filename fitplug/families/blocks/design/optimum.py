"""The optimum of a workload, over all blocks and components of its structure together.

docs/theory/symmetry.md shows how a block enters the solvers' problem.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.sparse import csr_array

from fitplug.certify import Tiers, make_one_tier
from fitplug.families.base.family import CLAIM_MARGIN, PRODUCT_BOUND_MARGIN, Design, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.design.factored_rows import FactoredRows
from fitplug.families.blocks.design.rounding import (
    RealBlocks,
    choose_bases,
    round_blocks,
    share_basis,
)
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.numeric import FloatArray, IndexArray
from fitplug.solve import (
    SOLVERS,
    Block,
    Component,
    DualValue,
    Options,
    Problem,
    Solution,
    compute_mean_of_product,
    evaluate_numbers,
    explain_end,
    find_components,
    join_solutions,
    merge_tiers,
    reduce_block,
    refine,
    solve_dual,
)

_MANY_CELLS = 4096
"""The most dense cells for which each iteration writes out a block's rows."""

_ITERATING, _FEWEST = 5e12, 20
"""The floating-point operations, about a minute of work, after which the iteration ends, and the
fewest iterations, which bring the gap of Delta to about 1%."""

_REFINING = 1e12
"""The floating-point operations after which no further component is refined."""


def design_matrices(
    structure: MatrixStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the objective at the targets, for single records.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        WorkloadError: If the rank of a block cannot be decided.
        DesignError: If floating point cannot evaluate the dual, or integers have no room.
    """
    # A total error couples all queries, as do the soft maxima of the paper's solver.
    is_coupled = len(structure.blocks) > 1 or objective.weight or options.solver == "sm2"
    solve = _solve_matrices if is_coupled else _solve_components
    if structure.cells > _MANY_CELLS and objective.plain and options.solver == "dual":
        solve = _solve_factored
    if structure.has_numbers and options.solver == "dual":
        solve = _solve_numbers
    real_blocks, solution, tiers = solve(structure, objective, options)
    strategy = round_blocks(
        structure, real_blocks, objective=objective, upper=solution.upper, loss=loss
    )
    return Design(
        strategy=strategy,
        duals=Duals(solution.p, solution.q),
        bound_margin=CLAIM_MARGIN,
        tiers=tiers.include_costly(strategy.column_squares > 0),
        iterations=solution.iterations,
        ended=explain_end(solution, options),
    )


def reduce_blocks(
    structure: MatrixStructure, budgets: FloatArray | None = None
) -> tuple[list[Block], list[IndexArray]]:
    """Reduce the noisy blocks, which are matrices, to the solvers' form.

    Args:
        structure: The structure of a workload.
        budgets: The largest profile allowed for each cell, shape (D,), or None.

    Returns:
        The blocks, and for each block the indices of k linearly independent rows of its matrix.

    Raises:
        WorkloadError: If the rank of a block cannot be decided.
    """
    blocks, independent = [], []
    for number in structure.noisy_blocks.tolist():
        queries = structure.gather_queries(number)
        matrix, rows, multiples = queries.matrix, queries.rows, queries.variance_multiples
        asked = np.arange(len(rows))
        if structure.public_attributes is not None:
            # Rows that public totals answer have no variance and no weight.
            asked = np.flatnonzero(matrix.any(axis=1))
            matrix, rows, multiples = matrix[asked], rows[asked], multiples[asked]
        if budgets is not None:
            matrix = matrix / np.sqrt(budgets)
        block, chosen = reduce_block(matrix, structure.targets[rows] / multiples)
        blocks.append(replace(block, rows=rows))
        independent.append(asked[chosen])
    return blocks, independent


def round_one_tier(
    structure: PairStructure,
    objective: Objective,
    real_blocks: Sequence[RealBlocks],
    solution: Solution,
    options: Options,
    loss: float,
) -> Design:
    """Round an unrefined optimum to integers."""
    return Design.in_one_tier(
        round_blocks(structure, real_blocks, objective=objective, upper=solution.upper, loss=loss),
        Duals(solution.p, solution.q),
        bound_margin=PRODUCT_BOUND_MARGIN,
        iterations=solution.iterations,
        ended=explain_end(solution, options),
    )


def _solve_numbers(
    structure: MatrixStructure, objective: Objective, options: Options
) -> tuple[list[RealBlocks], Solution, Tiers]:
    """Solve all blocks together, where each is a number: there is only one cell."""
    incidence = csr_array(structure.incidence / structure.targets[:, None])
    multiples = structure.subsets.profile_multiples[:, None]
    if objective.budgets is not None:
        multiples = multiples / objective.budgets
    fixed = objective.weight * structure.targets * structure.repeats

    def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        dual = evaluate_numbers(multiples, incidence, p, q + fixed)
        return replace(dual, ratios=dual.ratios + float(fixed @ dual.ratios))

    solution = solve_dual(
        Problem(1, structure.rows, ()),
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
        evaluate=evaluate,
    )
    tiers = make_one_tier(solution.profile, structure.rows)
    return [share_basis(structure, solution.whiteners[0])], solution, tiers


def _solve_matrices(
    structure: MatrixStructure, objective: Objective, options: Options
) -> tuple[list[RealBlocks], Solution, Tiers]:
    """Solve all blocks together."""
    unscaled = 1.0 if objective.budgets is None else np.sqrt(objective.budgets)
    multiples = structure.subsets.profile_multiples
    blocks, independent = reduce_blocks(structure, objective.budgets)
    scaled = [
        replace(block, basis=block.basis * np.sqrt(multiple))
        for block, multiple in zip(blocks, multiples, strict=True)
    ]
    problem = Problem(structure.cells, structure.rows, tuple(scaled))
    if objective.weight:
        fixed_weights = objective.weight * structure.targets * structure.repeats
        problem = replace(problem, fixed_weights=fixed_weights)
    refining = 0.0 if objective.weight or options.solver != "dual" else _REFINING
    solution, tiers, _ = _solve(problem, refining, options)
    reals = [
        whitener @ block.basis * unscaled / math.sqrt(multiple)
        for block, whitener, multiple in zip(scaled, solution.whiteners, multiples, strict=True)
    ]
    return choose_bases(structure, reals, independent, options.periods), solution, tiers


def _solve_factored(
    structure: MatrixStructure, objective: Objective, options: Options
) -> tuple[list[RealBlocks], Solution, Tiers]:
    """Solve all blocks together, for far more cells than dimensions; nothing is refined."""
    factored = [FactoredRows.of_block(structure, b) for b in range(len(structure.blocks))]
    if options.periods is not None or None in factored:
        return _solve_matrices(structure, objective, options)
    reduced, independent = reduce_blocks(structure)
    weights = structure.subsets.profile_multiples.tolist()
    blocks, mixings = [], []
    for number, (block, chosen) in enumerate(zip(reduced, independent, strict=True)):
        # The basis has independent rows over the roots of their targets, so its moments are among
        # those of all rows.
        mixing = block.representation[chosen]
        representation = np.asarray(np.linalg.solve(mixing.T, block.representation.T).T, float)
        blocks.append(replace(block, basis=mixing @ block.basis, representation=representation))
        multiples = structure.gather_queries(number).variance_multiples
        mixings.append(np.sqrt(multiples[chosen] / structure.targets[block.rows[chosen]]))

    def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        value, g, h, whiteners = 0.0, np.zeros(len(p)), np.zeros(len(q)), []
        for block, rows, chosen, scale, weight in zip(
            blocks, factored, independent, mixings, weights, strict=True
        ):
            assert rows is not None
            part = np.ix_(chosen, chosen)
            P = weight * scale[:, None] * rows.build_moment(p)[part] * scale
            mean = compute_mean_of_product(P, block.representation, q[block.rows])
            value += mean.value
            h[block.rows] += mean.ratios
            whiteners.append(mean.compute_whitener())
            strategy = whiteners[-1] * scale
            Y = np.zeros((rows.count, rows.count))
            Y[part] = weight * (strategy.T @ strategy)
            g += rows.compute_profile(Y)
        return DualValue(value, g, h, tuple(whiteners))

    solution = solve_dual(
        Problem(structure.cells, structure.rows, ()),
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
        evaluate=evaluate,
    )
    reals = [w @ block.basis for w, block in zip(solution.whiteners, blocks, strict=True)]
    tiers = make_one_tier(solution.profile, structure.rows)
    return choose_bases(structure, reals, independent), solution, tiers


def _solve_components(
    structure: MatrixStructure, objective: Objective, options: Options
) -> tuple[list[RealBlocks], Solution, Tiers]:
    """Solve the components of one block, sets of queries that share no cells, one by one."""
    budgets, (queries,) = objective.budgets, structure.gather_all_queries()
    targets, matrix = structure.targets, queries.matrix
    scaled = matrix if budgets is None else matrix / np.sqrt(budgets)
    components: list[Component] = []
    reals, independent, left = [], [], _REFINING
    for rows, cells in find_components(matrix):
        done = sum(component.solution.iterations for component in components)
        block, chosen = reduce_block(scaled[np.ix_(rows, cells)], targets[rows])
        problem = Problem(len(cells), len(rows), (block,))
        here = _offset_progress(options, done)
        if options.start is not None:
            here = replace(here, start=(options.start[0][cells], options.start[1][rows]))
        solution, tiers, work = _solve(problem, left, here)
        left -= work
        reals.append(solution.whiteners[0] @ block.basis)
        independent.append(rows[chosen])
        components.append(Component(rows, cells, solution, tiers))
        if solution.stopped:
            options = replace(options, max_iterations=1, refine=False, progress=None)
    whole, start = np.zeros((sum(map(len, reals)), matrix.shape[1])), 0
    for component, real in zip(components, reals, strict=True):
        whole[start : start + len(real), component.cells] = real
        start += len(real)
    if budgets is not None:
        whole *= np.sqrt(budgets)
    real_blocks = choose_bases(structure, [whole], [np.concatenate(independent)], options.periods)
    joined = join_solutions(matrix.shape, components)
    return real_blocks, joined, merge_tiers(matrix.shape, components, options.tolerance)


def _solve(problem: Problem, refining: float, options: Options) -> tuple[Solution, Tiers, float]:
    """Solve, and refine with at most `refining` operations; the last result is those used."""
    work = _estimate_work(problem.blocks, problem.cells)
    most = options.max_iterations
    if options.solver == "dual":
        most = limit_iterations(problem.blocks, problem.cells, most)
    solve = SOLVERS[options.solver]
    if options.start is not None:
        solve = partial(solve, start=options.start)
    solution = solve(
        problem,
        tolerance=options.tolerance,
        max_iterations=most,
        progress=options.progress,
    )
    tiers, first = make_one_tier(solution.profile, problem.queries), solution.iterations
    if options.refine and refining > work and solution.gap <= options.tolerance:
        solution, tiers = refine(
            problem,
            solution,
            tolerance=options.tolerance,
            max_iterations=min(options.max_iterations, int(refining / work)),
            progress=options.progress,
        )
    return solution, tiers, work * (solution.iterations - first)


def limit_iterations(blocks: Sequence[Block], cells: int, most: int) -> int:
    """Limit the iterations to about a minute of work, but not below the fewest."""
    return min(most, max(_FEWEST, int(_ITERATING / _estimate_work(blocks, cells))))


def _estimate_work(blocks: Sequence[Block], cells: int) -> float:
    """Estimate the floating-point operations of an iteration."""
    return sum(
        15.0 * len(block.basis) ** 2 * (len(block.basis) + len(block.rows) + cells)
        for block in blocks
    )


def _offset_progress(options: Options, done: int) -> Options:
    """Return options whose progress includes the `done` earlier iterations."""
    report = options.progress
    if report is None or not done:
        return options
    return replace(options, progress=lambda iteration, gap: report(done + iteration, gap))
