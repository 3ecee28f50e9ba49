"""The descent of the product family: several attributes whose product is too large to form.

The covariances (u_a, C_a) start at the optimum of each attribute by itself. Each iteration takes a
step in the Lagrangian (F16)

    sum_A z_A^-1 E_A + sum_A z_A (K'q)_A

from one set of its derivatives: z_A is a square root, C_a a geometric mean, u_a the solution of a
linear system, and the weights of differences and q ascend by the multiplicative steps (F21). E_A is
the average cost of scale A over the differences between neighbours, by their weights:
`fitplug.families.product.design.cell_weights` where a record is added or removed, and
`fitplug.families.product.design.pair_weights` where one is replaced. The value is not proven to
decrease in each iteration, so the best member seen is returned. If a group has many rows whose
targets do not vary along an attribute, q is a product along it. See docs/theory/product-family.md,
"Descent in the splits". The weights prove a lower bound on the privacy cost of every mechanism; see
`fitplug.families.product.design.bound_ascent`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from fitplug.families.product.certificate.product_duals import PairWeights
from fitplug.families.product.design.attribute_covariance import AttributeCovariance
from fitplug.families.product.design.members import FamilyMember, FamilyWeights, optimise_attributes
from fitplug.families.product.design.scales import (
    Profiles,
    Scales,
    VarianceMatrix,
    build_extreme_rows,
    compute_scales,
    invert_scales,
)
from fitplug.families.product.shape.batches import BatchedGroups, gather_tables
from fitplug.numeric import FloatArray
from fitplug.solve import GapProgress, mix_with_uniform

_MIXING = 0.03
"""The mass of uniform weights that a step mixes in, as a multiple of the tolerance."""

_RELAXATION = 1.4
"""The power of the weights' multiplicative steps after the first round."""

_MOVES = 3
"""With product weights, covariances move only in every third iteration: the weights need far more
iterations than the covariances."""

_WORSE = 0.02
"""If a round raises the cost by more than this share, plain steps continue from the best member."""

_ROUND = 24
"""The number of iterations between evaluations of the true privacy cost."""

_PART, _COARSEST = 0.1, 1e-3
"""The accuracy of scales before the end: this share of the distance to the value that the family
might reach, and at most the second number. Better scales for covariances that still move take most
of the time where there are many rows."""

_WORK = 1e10
"""The limit on the sum of the attributes' widths cubed, per variant, times the moves."""


class DifferenceWeights(Protocol):
    """Dual weights of the differences between neighbours, and the differences' costs.

    Costs are those at the covariances last given to `measure`.

    Attributes:
        are_products: Whether the weights are products over the attributes.
    """

    are_products: ClassVar[bool]

    def measure(self, covariances: Sequence[AttributeCovariance]) -> DifferenceWeights:
        """Return the same weights at other covariances."""

    def average(self) -> FloatArray:
        """Return the average cost of each scale at 1, shape (count,)."""

    def ascend(self, ascent: QueryAscent, mixing: float, power: float) -> DifferenceWeights:
        """Return weights raised where differences cost more than on average."""

    def compute_moments(self, attribute: int, ascent: QueryAscent) -> list[FloatArray]:
        """Return P_k of each grade: an attribute's Y_k enter the average cost as <P_k, Y_k>.

        Each is a diagonal (n,) or a matrix (n, n). The list is empty if the attribute has no cost.
        """

    def scale(
        self, rows: VarianceMatrix, tolerance: float, near: FamilyMember | None
    ) -> tuple[Scales, Profiles]:
        """Find the best scales for the covariances, and the costs of differences."""

    def refine(self, profiles: Profiles) -> DifferenceWeights:
        """Return weights that include separate ones for costly differences."""

    def share(self) -> DifferenceWeights:
        """Return nearby weights in the form that the product bound can use."""

    def list_weights(self) -> tuple[tuple[FloatArray, ...], PairWeights | None]:
        """List the weights returned by `share` in the form of the product bound."""

    def balance(self, costs: FloatArray, needed: FloatArray) -> FloatArray:
        """Return the best scales; see `Profiles.balance`."""
        return compute_scales(costs, needed)


def descend_product_family(
    batched: BatchedGroups,
    spread: BatchedGroups,
    start: tuple[tuple[AttributeCovariance, ...], FamilyWeights, DifferenceWeights],
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 600,
    progress: GapProgress | None = None,
) -> FamilyMember:
    """Find a good member of the product family by alternating descent.

    Args:
        batched: The groups.
        spread: The groups, with targets along the axes on which rows have individual weights.
        start: The initial covariances, weights of the queries of `spread`, and weights of
            differences.
        tolerance: The descent ends when two rounds in a row lower the privacy cost by at most this
            share, and the weights have settled. The scales are optimal to a fraction of it.
        max_iterations: The largest number of iterations.
        progress: Called with the iterations so far and the relative difference between the member's
            cost and the value that the family might reach; it may request a stop.

    Raises:
        WorkloadError: If too many queries have individual targets.
        DesignError: As the dual solver does.
    """
    covariances, weights, differences = start
    cubes = sum(
        n**3.0 * (len(grades.starts) - 1)
        for n, symmetric, grades in zip(
            batched.widths, batched.symmetric, batched.grades, strict=True
        )
        if not symmetric
    )
    # A single attribute starts at its optimum, and so do symmetric attributes.
    descends = len(covariances) > 1 and cubes > 0
    # With other weights, the largest cost only falls to the mean if covariances follow each step.
    every, work = (_MOVES, _MOVES * _WORK) if differences.are_products else (1, _WORK)
    most = min(max_iterations, 1 + int(work / cubes)) if descends else 0
    mixing = _MIXING * tolerance
    state = _State(
        spread,
        covariances,
        weights,
        differences.measure(covariances),
        spread.compute_tables(covariances),
    )
    accuracy, slack = max(tolerance, _COARSEST), tolerance / 10
    best, best_state = _scale(batched, state, accuracy, None, slack), state
    idle, last, done, stopped = 0, 0.0, 0, False
    while done < most and not stopped:
        try:
            for _ in range(min(_ROUND, most - done)):
                power = _RELAXATION if done >= _ROUND and every > 1 else 1.0
                state = state.step(mixing, power, done % every == 0)
                done += 1
        except (np.linalg.LinAlgError, ValueError):
            # Floating point can go no further; the best member so far is returned. SciPy raises
            # ValueError for a matrix with an infinite entry.
            break
        accuracy = max(tolerance, min(_COARSEST, _PART * (best.upper / state.value - 1)))
        scaled = _scale(batched, state, accuracy, best, slack)
        if every > 1 and scaled.upper > best.upper * (1 + _WORSE):
            # The steps are too long for this workload.
            every, state = 1, best_state
            continue
        idle = 0 if scaled.upper < best.upper * (1 - tolerance) else idle + 1
        if scaled.upper < best.upper:
            best, best_state = scaled, state
        if progress is not None:
            stopped = progress(done, max(best.upper / state.value - 1, tolerance)) is True
        if idle >= 2 and abs(state.value - last) <= tolerance / 4 * state.value:
            break
        last = state.value
        state = replace(state, differences=state.differences.refine(scaled.profiles))
    if accuracy > tolerance:
        best = min(
            best, _scale(batched, best_state, tolerance, best, slack), key=lambda one: one.upper
        )
    shared = state.differences.share()
    if shared is not state.differences:
        # The product bound also needs weights of queries that are products.
        _, weights = optimise_attributes(batched)
        state = _State(
            batched,
            state.covariances,
            weights,
            shared,
            batched.compute_tables(state.covariances),
        )
        try:
            for step in range(done):
                state = state.step(mixing, 1.0, step % _MOVES == 0)
        except (np.linalg.LinAlgError, ValueError):
            pass
    cells, pairs = state.differences.list_weights()
    weights = replace(state.weights, cells=cells, pairs=pairs)
    return replace(best, weights=weights, iterations=done, stopped=stopped)


@dataclass(frozen=True, eq=False)
class _State:
    """The state of the descent.

    Attributes:
        batched: The groups, with targets along the same axes as the weights of queries.
        covariances: The covariance of each attribute.
        weights: The weights of queries.
        differences: The weights of differences.
        tables: mu^2 and gammas of the rows of each factor, shape (r, 1 + K).
        value: Half of the Lagrangian before the last iteration: the privacy cost if no step can
            improve it.
    """

    batched: BatchedGroups
    covariances: tuple[AttributeCovariance, ...]
    weights: FamilyWeights
    differences: DifferenceWeights
    tables: list[FloatArray]
    value: float = 0.0

    def step(self, mixing: float, power: float, moves: bool) -> _State:
        """Make one iteration: find the scales, raise the weights and, if asked, move
        covariances."""
        batched, before = self.batched, self.differences
        ascent = ascend_queries(
            batched, self.tables, self.weights, before, mixing=mixing, power=power
        )
        weights = replace(self.weights, queries=ascent.queries, shares=ascent.shares)
        after = before.ascend(ascent, mixing, power)
        state = replace(self, weights=weights, differences=after, value=ascent.total)
        if not moves:
            return state
        moved = list(self.covariances)
        for a, covariance in enumerate(moved):
            moments = [] if batched.symmetric[a] else before.compute_moments(a, ascent)
            if moments:
                pulls = [
                    (factor, pull)
                    for factor, pull in zip(batched.factors, ascent.pulls, strict=True)
                    if factor.attribute == a
                ]
                moved[a] = covariance.descend(moments, pulls)
        return replace(
            state,
            covariances=tuple(moved),
            differences=after.measure(moved),
            tables=batched.compute_tables(moved),
        )


def _scale(
    batched: BatchedGroups, state: _State, tolerance: float, near: FamilyMember | None, slack: float
) -> FamilyMember:
    """Return the member with the best scales, to a tolerance, for the covariances of a state."""
    rows = build_extreme_rows(batched, state.tables, slack)
    scales, profiles = state.differences.scale(rows, tolerance, near)
    return FamilyMember(batched, state.covariances, scales, profiles, state.weights)


@dataclass(frozen=True, eq=False)
class QueryAscent:
    """The best scales for given weights, and a step of ascent for the weights of queries.

    Attributes:
        z: The scales, shape (count,).
        spent: Each scale's contribution to half of the Lagrangian, shape (count,).
        queries: The weights of rows after the step, as `FamilyWeights` has them.
        shares: The shares of the rows of factors after the step, likewise.
        pulls: The derivatives of the Lagrangian with respect to mu^2 and the gammas of each
            factor's rows, (r, 1 + K).
    """

    z: FloatArray
    spent: FloatArray
    queries: tuple[FloatArray, ...]
    shares: tuple[FloatArray, ...]
    pulls: tuple[FloatArray, ...]

    @property
    def precisions(self) -> FloatArray:
        """1 / z, or 0 for scales that no query needs, shape (count,)."""
        return invert_scales(self.z)

    @property
    def total(self) -> float:
        """Half of the Lagrangian: the privacy cost if no step can improve it."""
        return float(self.spent.sum())


def ascend_queries(
    batched: BatchedGroups,
    tables: Sequence[FloatArray],
    weights: FamilyWeights,
    differences: DifferenceWeights,
    *,
    mixing: float,
    power: float = 1.0,
) -> QueryAscent:
    """Find the scales, and raise the weights of queries."""
    rows = _mix_rows(batched, tables, weights.shares)
    q = np.concatenate([q_batch.ravel() for q_batch in weights.queries])
    needed, costs = rows.multiply_transposed(q), differences.average()
    z = differences.balance(costs, needed)
    spent = np.divide(costs, z, out=np.zeros_like(z), where=z > 0)
    raised = q * (rows.multiply(z) / float(spent.sum())) ** power
    raised = mix_with_uniform(raised / raised.sum(), mixing)
    cuts = np.cumsum([q_batch.size for q_batch in weights.queries])[:-1]
    queries = tuple(
        new.reshape(old.shape)
        for new, old in zip(np.split(raised / raised.sum(), cuts), weights.queries, strict=True)
    )
    pulls, shares = _differentiate(batched, tables, rows, weights, q, z, power)
    mixed = tuple(mix_with_uniform(share, mixing) for share in shares)
    return QueryAscent(z, spent, queries, mixed, tuple(pulls))


def _mix_rows(
    batched: BatchedGroups, tables: Sequence[FloatArray], shares: Sequence[FloatArray]
) -> VarianceMatrix:
    """Build K. Along axes where targets do not vary, average the rows by their shares."""
    mixtures = [(share @ table)[None] for share, table in zip(shares, tables, strict=True)]
    axes = tuple(
        tuple(
            gather_tables(tables if varies else mixtures, factors)
            for factors, varies in zip(batch.factors.T, batch.varying, strict=True)
        )
        for batch in batched.batches
    )
    return VarianceMatrix(
        tuple(batch.scales for batch in batched.batches),
        axes,
        tuple(batch.targets for batch in batched.batches),
        batched.scales.count,
    )


def _differentiate(
    batched: BatchedGroups,
    tables: Sequence[FloatArray],
    rows: VarianceMatrix,
    weights: FamilyWeights,
    q: FloatArray,
    z: FloatArray,
    power: float,
) -> tuple[list[FloatArray], tuple[FloatArray, ...]]:
    """Differentiate the Lagrangian by mu^2 and the gammas of each factor's rows.

    Returns the derivatives for each factor (r, 1 + K), and the shares (r,) after a step of ascent.
    """
    pulls = [np.zeros_like(table) for table in tables]
    mixed = [np.zeros(table.shape[1]) for table in tables]
    batches = zip(batched.batches, rows.divide_by_targets(q), rows.tables, strict=True)
    for batch, weighted, axes in batches:
        for axis, factors in enumerate(batch.factors.T):
            slope = _contract(weighted, batched.scales.gather(z, batch.scales), axes, axis)
            if batch.varying[axis]:
                for f in np.unique(factors):
                    pulls[f] += slope[factors == f].sum(axis=0)
            else:
                for f, one in zip(factors.tolist(), slope[:, 0], strict=True):
                    mixed[f] += one
    raised = []
    for pull, table, share, slope in zip(pulls, tables, weights.shares, mixed, strict=True):
        pull += np.outer(share, slope)
        grown = share * (table @ slope) ** power
        raised.append(grown / grown.sum() if grown.sum() > 0 else share)
    return pulls, tuple(raised)


def _contract(
    weighted: FloatArray, z: FloatArray, tables: tuple[FloatArray, ...], axis: int
) -> FloatArray:
    """Differentiate sum(weighted * (z contracted with all tables)) by the table of one axis.

    Args:
        weighted: Weights over targets, shape (g, r_1, ..., r_m).
        z: Scales, shape (g, 1 + K_1, ..., 1 + K_m).
        tables: m tables, shape (g, r_i, 1 + K_i).
        axis: The table's index.

    Returns:
        The derivative, shape (g, r, 1 + K).
    """
    weighted = np.moveaxis(weighted, 1 + axis, -1)
    for i, table in enumerate(tables):
        if i != axis:
            weighted = np.einsum("gi...r,gia->g...ar", weighted, table)
    g, r = len(weighted), weighted.shape[-1]
    z = np.moveaxis(z, 1 + axis, -1)
    z = z.reshape(g, -1, z.shape[-1])
    return np.asarray(np.einsum("gxr,gxa->gra", weighted.reshape(g, -1, r), z))
