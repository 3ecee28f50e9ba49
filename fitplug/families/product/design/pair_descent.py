"""The descent of the product family where neighbours replace a record.

It is that of `fitplug.families.product.design.descent` with weights of pairs of cells instead of
cells. A record moves along the attributes of a move t, of the weight r_t, and then has the values i
and j of attribute a with the weight S_at(i, j): 0 for i = j if a is in t, and for i != j if not. At
these weights scale z_A costs

    2 r'(prod_{a in A} e_a - prod_{a in A} y_a)    e_at = sum_i S_at(i, .) Y_ii    y_at = <S_at, Y>

and attribute a has the Lagrangian <P, Y_a>, P = 2 sum_t r_t (alpha_t diag(S_at 1) - beta_t S_at),
where alpha and beta are the sums over the blocks with a of the products of the other attributes' e
and y over z. For the product bound the weights are then restricted to one p and one s for each
attribute, with p_i p_j (1 - s_i s_j) for all moves along it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fitplug.families.product.certificate.product_duals import PairWeights
from fitplug.families.product.design.attribute_covariance import AttributeCovariance
from fitplug.families.product.design.descent import ascend_queries
from fitplug.families.product.design.initial_member import optimise_attributes
from fitplug.families.product.design.members import FamilyMember, FamilyWeights
from fitplug.families.product.design.pair_profiles import (
    PairProfiles,
    list_pair_products,
    multiply_over_blocks,
)
from fitplug.families.product.design.scales import build_extreme_rows, optimise_scales
from fitplug.families.product.shape.pairs import ProductPairStructure
from fitplug.numeric import BoolArray, FloatArray, IntArray
from fitplug.solve import GapProgress, mix_with_uniform

_MIXING = 0.03
"""The mass of uniform weights that a step mixes in, as a multiple of the tolerance."""

_ROUND = 50
"""Iterations between two evaluations of the true privacy cost."""

_WORK = 1e10
"""The sum of the cubes of the attributes' widths times the iterations: a minute or so."""

_MOST_ENTRIES = 20_000_000
"""The most weights of pairs of values, of all moves together."""

_STARTS = 3
"""From how many pairs of each move costly pairs are searched for."""

_SEARCHES = 12
"""The most times that costly pairs are searched for."""

_JITTER = 1e-9
"""What is added to the moments of an attribute, as a part of the mean of their diagonal."""


@dataclass(frozen=True, eq=False)
class PairShares:
    """Weights of pairs of cells.

    Attributes:
        moves: Along which attributes a record moves, shape (t, attributes).
        shares: r, the weights of the moves, which sum to 1, shape (t,).
        cells: Per attribute S_at 1, shape (t, n_a); of a symmetric attribute nothing.
        pairs: Per attribute S_at of the moves along it, shape (t_a, n_a, n_a), likewise.
        sides: Per attribute s, where all moves share p and s, shape (n_a,); None where they do not.
    """

    moves: BoolArray
    shares: FloatArray
    cells: tuple[FloatArray, ...]
    pairs: tuple[FloatArray, ...]
    sides: tuple[FloatArray, ...] | None = None

    @classmethod
    def spread(cls, structure: ProductPairStructure) -> PairShares:
        """Give all pairs of values equal weights."""
        sizes = np.where(structure.batched.symmetric, 0, structure.sizes).tolist()
        most = _MOST_ENTRIES // (1 + sum(n**2 for n in sizes))
        moves = structure.moves[: max(1, most)]
        t = len(moves)
        return cls(
            moves,
            np.full(t, 1 / t),
            tuple(np.full((t, n), 1 / max(n, 1)) for n in sizes),
            tuple(
                np.broadcast_to(
                    (1 - np.eye(n)) / max(n * (n - 1), 1), (int(own.sum()), n, n)
                ).copy()
                for n, own in zip(sizes, moves.T, strict=True)
            ),
        )

    def share_values(self) -> PairShares:
        """Give all moves one p and one s for each attribute, near to the weights."""
        cells, pairs, sides = [], [], []
        for p, S, move in zip(self.cells, self.pairs, self.moves.T, strict=True):
            n = p.shape[1]
            if not n:
                cells.append(p)
                pairs.append(S)
                sides.append(np.zeros(0))
                continue
            mean = self.shares @ p
            side = np.zeros(n)
            if len(S):
                root = np.sqrt(mean)
                whole = np.tensordot(self.shares[move], S, 1)
                _, U = np.linalg.eigh(whole / np.outer(root, root))
                side = U[:, 0] / root
                side /= np.abs(side).max()
            cells.append(np.broadcast_to(mean, p.shape))
            pairs.append(np.broadcast_to(_join_sides(mean, side), S.shape))
            sides.append(side)
        return replace(self, cells=tuple(cells), pairs=tuple(pairs), sides=tuple(sides))


def _join_sides(p: FloatArray, s: FloatArray) -> FloatArray:
    """Compute the weights (n, n) of all pairs of values of an attribute that its moves share."""
    return np.outer(p, p) - np.outer(p * s, p * s)


@dataclass(frozen=True, eq=False)
class PairDescent:
    """The state of the descent.

    Attributes:
        structure: The structure.
        covariances: The covariance of each attribute.
        weights: The weights of queries; those of cells are not used.
        pairs: The weights of pairs.
        value: Half of the Lagrangian before the last iteration.
    """

    structure: ProductPairStructure
    covariances: tuple[AttributeCovariance, ...]
    weights: FamilyWeights
    pairs: PairShares
    value: float = 0.0

    def step(self, mixing: float) -> PairDescent:
        """Make one iteration."""
        structure, pairs, batched = self.structure, self.pairs, self.structure.batched
        products = list_pair_products(self.covariances, structure.sizes)
        e, y = self._average(products)
        blocks = structure.noisy_blocks
        costs = np.zeros((len(pairs.shares), len(structure.blocks)))
        costs[:, blocks] = 2 * (_multiply(structure, e) - _multiply(structure, y))
        costs = np.maximum(costs, 0.0)
        tables = batched.compute_tables(self.covariances)
        ascent = ascend_queries(batched, tables, self.weights, pairs.shares @ costs, mixing=mixing)
        precisions = np.divide(1.0, ascent.z, out=np.zeros_like(ascent.z), where=ascent.z > 0)
        spent = costs @ precisions
        grown = pairs.shares * spent
        shares = mix_with_uniform(grown / grown.sum(), mixing)
        moved = list(self.covariances)
        cells, weights = list(pairs.cells), list(pairs.pairs)
        sides = None if pairs.sides is None else list(pairs.sides)
        for a, Y in enumerate(products):
            if batched.symmetric[a]:
                continue
            alpha = _multiply(structure, e, a) @ precisions[blocks]
            beta = _multiply(structure, y, a) @ precisions[blocks]
            move = pairs.moves[:, a]
            others = spent - 2 * (alpha * e[:, a] - beta * y[:, a])
            # What the pairs of values cost on average over the others, and the moments.
            p, S = pairs.cells[a], pairs.pairs[a]
            eta = Y.diagonal()
            stay = 2 * (alpha - beta)[:, None] * eta + others[:, None]
            apart = np.empty_like(S)
            both = np.add.outer(eta, eta)
            moments = np.diag(2 * (pairs.shares * alpha) @ p)
            for k, t in enumerate(np.flatnonzero(move).tolist()):
                apart[k] = alpha[t] * both - 2 * beta[t] * Y + others[t]
                moments -= 2 * pairs.shares[t] * beta[t] * S[k]
            still = pairs.shares * beta * ~move
            moments -= np.diag(2 * still @ p)
            if sides is not None:
                cells[a], weights[a], sides[a] = _ascend_shared(
                    pairs, a, stay, np.maximum(apart, 0.0), mixing
                )
            else:
                cells[a], weights[a] = _ascend(p, S, move, stay, apart, mixing)
            scale = float(moments.trace()) / len(moments)
            if scale > 0:
                moments[np.diag_indices(len(moments))] += _JITTER * scale
                own = [
                    (factor, pull)
                    for factor, pull in zip(batched.factors, ascent.pulls, strict=True)
                    if factor.attribute == a
                ]
                moved[a] = moved[a].descend(moments, np.ones(1), own)
        found = PairShares(
            pairs.moves,
            shares,
            tuple(cells),
            tuple(weights),
            None if sides is None else tuple(sides),
        )
        after = FamilyWeights(self.weights.cells, ascent.queries, ascent.shares)
        return PairDescent(structure, tuple(moved), after, found, ascent.total)

    def _average(self, products: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Compute e and y of each move and attribute, shape (t, attributes)."""
        pairs = self.pairs
        e = np.empty(pairs.moves.shape)
        y = np.empty(pairs.moves.shape)
        for a, Y in enumerate(products):
            if self.structure.batched.symmetric[a]:
                e[:, a] = Y[0, 0]
                y[:, a] = np.where(pairs.moves[:, a], Y[0, -1], Y[0, 0])
                continue
            e[:, a] = y[:, a] = pairs.cells[a] @ Y.diagonal()
            y[pairs.moves[:, a], a] = np.tensordot(pairs.pairs[a], Y, 2)
        return e, y

    def draw_pairs(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Draw pairs of cells by their weights; two values stand for a symmetric attribute."""
        rng = np.random.default_rng(0)  # A constant seed, so that designs are reproducible.
        symmetric = self.structure.batched.symmetric
        for t, move in enumerate(self.pairs.moves):
            for _ in range(_STARTS):
                first, second = np.zeros((2, len(move)), dtype=np.int64)
                for a, n in enumerate(self.structure.sizes):
                    if symmetric[a]:
                        second[a] = int(move[a])
                    elif move[a]:
                        S = self.pairs.pairs[a][int(self.pairs.moves[:t, a].sum())]
                        flat = S.ravel()
                        first[a], second[a] = divmod(int(rng.choice(n * n, p=flat / flat.sum())), n)
                    else:
                        p = self.pairs.cells[a][t]
                        first[a] = second[a] = int(rng.choice(n, p=p / p.sum()))
                yield first, second


def _multiply(
    structure: ProductPairStructure, numbers: FloatArray, of: int | None = None
) -> FloatArray:
    """Multiply numbers (t, attributes) over the attributes of the noisy blocks, (t, blocks).

    Of an attribute, over the others in blocks that have it, and 0 for blocks without it.
    """
    blocks = structure.blocks[structure.noisy_blocks]
    if of is None:
        return multiply_over_blocks(numbers, blocks)
    others = numbers.copy()
    others[:, of] = 1.0
    return multiply_over_blocks(others, blocks) * (blocks == of).any(axis=1)


def _ascend(
    p: FloatArray,
    S: FloatArray,
    move: BoolArray,
    stay: FloatArray,
    apart: FloatArray,
    mixing: float,
) -> tuple[FloatArray, FloatArray]:
    """Raise the weights of an attribute's values and pairs of values, of each move on its own."""
    p, S = p * np.maximum(stay, 0.0), S * np.maximum(apart, 0.0)
    n = S.shape[-1]
    for k in range(len(S)):
        total = float(S[k].sum())
        S[k] *= (1 - mixing) / (total or 1.0)
        S[k] += mixing * (1 - np.eye(n)) / (n * (n - 1))
    totals = p.sum(axis=1, keepdims=True)
    p = (1 - mixing) * p / np.where(totals > 0, totals, 1.0) + mixing / n
    p[move] = S.sum(axis=2)
    return p / p.sum(axis=1, keepdims=True), S


def _ascend_shared(
    pairs: PairShares, a: int, stay: FloatArray, apart: FloatArray, mixing: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Raise the weights of an attribute's values where all moves share p and s.

    With l = p (1 + s) and h = p (1 - s) the weights are those of i and j, drawn from l and from h.
    """
    assert pairs.sides is not None
    p, s, move = pairs.cells[a][0], pairs.sides[a], pairs.moves[:, a]
    shares = pairs.shares
    low, high = p * (1 + s), p * (1 - s)
    low, high = low / low.sum(), high / high.sum()
    apart = np.tensordot(shares[move], apart, 1)
    alone = (shares * ~move) @ stay
    low, high = low * (apart @ high + alone), high * (apart @ low + alone)
    low, high = (mix_with_uniform(own / own.sum(), mixing) for own in (low, high))
    p = (low + high) / 2
    s = (low - high) / (low + high)
    S = _join_sides(p, s)
    return (
        np.broadcast_to(p, pairs.cells[a].shape),
        np.broadcast_to(S, pairs.pairs[a].shape),
        s,
    )


def descend_pairs(
    structure: ProductPairStructure,
    *,
    tolerance: float,
    max_iterations: int,
    progress: GapProgress | None = None,
) -> tuple[FamilyMember, PairProfiles, FamilyWeights, PairWeights]:
    """Find a good member of the family, and weights for the product bound.

    Args:
        structure: The structure.
        tolerance: The descent ends when two rounds in turn lower the privacy cost by no more than
            this part. The scales are optimal to a fraction of it.
        max_iterations: The largest number of iterations.
        progress: As `descend_product_family` calls it.

    Returns:
        The member, the profile of its costly pairs, and weights of queries and pairs.

    Raises:
        WorkloadError: If too many queries have targets of their own.
        DesignError: As the dual solver does.
    """
    batched = structure.batched
    covariances, weights = optimise_attributes(batched)
    state = PairDescent(structure, covariances, weights, PairShares.spread(structure))
    cubes = 1 + sum(
        n**3.0
        for n, symmetric in zip(batched.widths, batched.symmetric, strict=True)
        if not symmetric
    )
    most = min(max_iterations, 1 + int(_WORK / cubes))
    best: tuple[FamilyMember, PairProfiles] | None = None
    idle, done, stopped = 0, 0, False
    while done < most and idle < 2 and not stopped:
        try:
            for _ in range(min(_ROUND, most - done)):
                state = state.step(_MIXING * tolerance)
                done += 1
        except np.linalg.LinAlgError:
            # Floating point can go no further; the best member so far is returned.
            break
        found = _scale(state, tolerance)
        idle = 0 if best is None or found[0].upper < best[0].upper * (1 - tolerance) else idle + 1
        best = found if best is None else min(best, found, key=lambda one: one[0].upper)
        if progress is not None:
            stopped = progress(done, max(best[0].upper / state.value - 1, tolerance)) is True
    best = best or _scale(state, tolerance)
    member, profiles = best
    shared = replace(state, pairs=state.pairs.share_values())
    try:
        for _ in range(done):
            shared = shared.step(_MIXING * tolerance)
    except np.linalg.LinAlgError:
        pass
    assert shared.pairs.sides is not None
    cells = tuple(
        own[0] if own.shape[1] else p
        for own, p in zip(shared.pairs.cells, weights.cells, strict=True)
    )
    sides = tuple(
        s if move.any() else np.zeros(0)
        for s, move in zip(shared.pairs.sides, structure.moves.T, strict=True)
    )
    every = np.zeros(len(structure.moves))
    every[: len(shared.pairs.shares)] = shared.pairs.shares
    member = replace(member, iterations=done, stopped=stopped)
    return (
        member,
        profiles,
        replace(shared.weights, cells=cells),
        PairWeights(structure.moves, every, sides),
    )


def _scale(state: PairDescent, tolerance: float) -> tuple[FamilyMember, PairProfiles]:
    """Find the best scales for the covariances, with the pairs of cells that are costly there."""
    structure, batched = state.structure, state.structure.batched
    rows = build_extreme_rows(batched, batched.compute_tables(state.covariances), tolerance / 10)
    products = list_pair_products(state.covariances, structure.sizes)
    profiles = PairProfiles.of_pairs(structure, products, list(state.draw_pairs()))
    scales = None
    for _ in range(_SEARCHES):
        scales = optimise_scales(rows, profiles, tolerance=tolerance / 4)
        precisions = np.divide(1.0, scales.z, out=np.zeros_like(scales.z), where=scales.z > 0)
        most = float(profiles.multiply(precisions).max())
        wider, reached = profiles.search(precisions)
        if reached <= most * (1 + tolerance):
            break
        profiles = wider
    assert scales is not None
    worst = float(rows.multiply(scales.z).max())
    scales = replace(scales, upper=float(np.sqrt(max(most, reached) * worst)))
    return FamilyMember(batched, state.covariances, scales, state.weights), profiles
