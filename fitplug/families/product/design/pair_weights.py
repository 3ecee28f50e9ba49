"""Dual weights of pairs of cells, where neighbours replace a record.

A record moves along the attributes of a move t, which has weight r_t. Its two cells have the values
i and j of attribute a with weight S_at(i, j), which is 0 for i = j if a is in t, and for i != j if
not. At these weights, the scale z of the grades k of block A costs, on average,

    2 r'(prod_{a in A} e_a - prod_{a in A} y_a)    e_at = sum_i S_at(i, .) Y_k(i, i)
                                                   y_at = <S_at, Y_k>

for the grade k of each attribute, and attribute a has the Lagrangian sum_k <P_k, Y_k> with
P_k = 2 sum_t r_t (alpha_tk diag(S_at 1) - beta_tk S_at), where alpha and beta sum the products of
the other attributes' e and y, divided by z, over the scales with grade k. For the product bound,
the weights are then restricted to one p and one s per attribute, with p_i p_j (1 - s_i s_j) for all
moves along it.

The best weights need not be products. So pairs of cells that are costly at the best scales get
individual weights, too.

In a hierarchy a move leads from one child of a node to another, with one move for the top and one
for the finest parents. Its leaves have the weights p, and y is that of `TreeProducts`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from fitplug.families.product.certificate.product_duals import PairWeights
from fitplug.families.product.certificate.products import count_sides
from fitplug.families.product.design.attribute_covariance import AttributeCovariance
from fitplug.families.product.design.descent import DifferenceWeights, QueryAscent
from fitplug.families.product.design.members import FamilyMember
from fitplug.families.product.design.pair_ascent import (
    ascend_leaves,
    ascend_pairs,
    ascend_shared_pairs,
    join_sides,
)
from fitplug.families.product.design.pair_products import (
    Products,
    TreeProducts,
    list_pair_products,
)
from fitplug.families.product.design.pair_profiles import PairProfiles, ScaleProducts
from fitplug.families.product.design.scales import (
    Profiles,
    Scales,
    VarianceMatrix,
    invert_scales,
    optimise_scales,
)
from fitplug.families.product.shape.grades import add_total
from fitplug.families.product.shape.products import ProductPairStructure
from fitplug.numeric import BoolArray, FloatArray, IntArray
from fitplug.solve import mix_with_uniform

_MOST_ENTRIES = 20_000_000
"""The most weights of pairs of values, of all moves together."""

_STARTS = 3
"""The number of random pairs per move from which searches for costly pairs start."""

_SEARCHES = 12
"""The most searches for costly pairs."""

_GIVEN = 0.01
"""The share of all weight that new individual weights of costly pairs get."""

_LEAST_COSTLY = 1e-3
"""A pair loses its individual weight below this share of 1 over the number of such pairs."""

_LEAST_SHARE = 1e-4
"""Below this share of the largest, moves along hierarchies and the pairs of the last scales end."""

_LARGEST = 2.0**100
"""The largest eta of a hierarchy, whose covariance may shrink or grow in each step."""

_JITTER = 1e-9
"""The jitter on the diagonal of an attribute's moments, relative to the diagonal's mean."""


@dataclass(frozen=True, eq=False)
class PairShares(DifferenceWeights):
    """Dual weights of pairs of cells.

    Attributes:
        structure: The structure.
        moves: The way of each move along each attribute: 0 if it does not change; in a hierarchy 1
            plus the depth at which leaves part; and 1 elsewhere, shape (t, attributes).
        shares: r, the weights of the moves, which sum to 1 with `costly_weights`, shape (t,).
        cells: Per attribute, S_at 1, shape (t, n_a); n_a counts as 0 for a symmetric attribute.
        pairs: Per attribute, S_at of the moves along it, shape (t_a, n_a, n_a), where n_a counts as
            0 for a hierarchy, too.
        costly: Pairs of cells with individual weights, shape (k, 2, attributes).
        costly_weights: The weights of the pairs in `costly`, shape (k,).
        sides: Per attribute, s, shape (n_a,), if all moves share p and s; otherwise None.
        products: Y_k of each attribute's grades, shape (K, n_a, n_a); for a symmetric attribute, at
            two of its cells.
    """

    are_products: ClassVar[bool] = False

    structure: ProductPairStructure
    moves: IntArray
    shares: FloatArray
    cells: tuple[FloatArray, ...]
    pairs: tuple[FloatArray, ...]
    costly: IntArray
    costly_weights: FloatArray
    sides: tuple[FloatArray, ...] | None = None
    products: tuple[Products, ...] = ()

    @classmethod
    def spread(cls, structure: ProductPairStructure, cells: Sequence[FloatArray]) -> PairShares:
        """Give all pairs of values equal weights, and leaves of hierarchies those in `cells`."""
        batched = structure.batched
        is_tree = np.array([tree is not None for tree in structure.trees])
        sizes = np.where(batched.symmetric, 0, structure.sizes)
        squares = np.where(is_tree, 0, sizes).tolist()
        ways = [
            (1,) if grades.tree is None else sorted({1, grades.tree.steps})
            for grades in batched.grades
        ]
        most = _MOST_ENTRIES // (1 + sum(n**2 for n in squares))
        moves = np.array(
            [
                way
                for move in structure.moves[~structure.near.any(axis=1)]
                for way in itertools.product(
                    *(k if moved else (0,) for k, moved in zip(ways, move, strict=True))
                )
            ]
        )[: max(1, most)]
        t = len(moves)
        return cls(
            structure,
            moves,
            np.full(t, 1 / t),
            tuple(
                np.tile(p if tree else np.full(n, 1 / max(n, 1)), (t, 1))
                for p, n, tree in zip(cells, sizes.tolist(), is_tree.tolist(), strict=True)
            ),
            tuple(
                np.tile((1 - np.eye(n)) / max(n * (n - 1), 1), (int(along.sum()), 1, 1))
                for n, along in zip(squares, moves.T > 0, strict=True)
            ),
            np.zeros((0, 2, len(squares)), dtype=np.int64),
            np.zeros(0),
        )

    @cached_property
    def _along(self) -> BoolArray:
        """Whether each move is along each attribute, shape (t, attributes)."""
        return self.moves > 0

    def measure(self, covariances: Sequence[AttributeCovariance]) -> PairShares:
        """Return the same weights at other covariances, or raise LinAlgError to end the descent."""
        products = list_pair_products(covariances, self.structure.sizes)
        trees = [Y.eta.max() for Y in products if isinstance(Y, TreeProducts)]
        # Where queries do not distinguish the leaves, eta is 0.
        if not all(eta == 0 or _LARGEST**-1 <= eta <= _LARGEST for eta in trees):
            raise np.linalg.LinAlgError("the covariances are too small or too large")
        return replace(self, products=products)

    @cached_property
    def _means(self) -> tuple[list[FloatArray], list[FloatArray]]:
        """e and y of each attribute and move, with 1 for its total, shapes (t, 1 + K)."""
        e, y = [], []
        for a, Y in enumerate(self.products):
            if isinstance(Y, TreeProducts):
                e.append(add_total(self.cells[a] @ Y.eta))
                y.append(add_total(Y.average(self.cells[a], self.moves[:, a])))
                continue
            move, eta = self._along[:, a], np.diagonal(Y, axis1=1, axis2=2)
            if self.structure.batched.symmetric[a]:
                first = np.broadcast_to(eta[:, 0], (len(move), len(Y)))
                both = np.where(move[:, None], Y[:, 0, -1], first)
            else:
                first = self.cells[a] @ eta.T
                both = first.copy()
                both[move] = np.tensordot(self.pairs[a], Y, ((1, 2), (1, 2)))
            e.append(add_total(first))
            y.append(add_total(both))
        return e, y

    @cached_property
    def _costs(self) -> FloatArray:
        """The average cost of each scale at 1 over the pairs of each move, (t, count)."""
        scales = ScaleProducts(self.structure)
        e, y = self._means
        costs = 2 * (scales.multiply(e) - scales.multiply(y))
        return np.maximum(costs, 0.0) * scales.is_noisy

    @cached_property
    def _profiles(self) -> PairProfiles:
        """The costs of the pairs with individual weights."""
        return PairProfiles.of_pairs(self.structure, self.products, self.costly)

    def average(self) -> FloatArray:
        """Return the average cost of each scale at 1, shape (count,)."""
        return self.shares @ self._costs + self._profiles.multiply_transposed(self.costly_weights)

    def _differentiate(self, a: int, precisions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute alpha and beta of an attribute, shapes (t, K)."""
        scales = ScaleProducts(self.structure)
        e, y = self._means
        return scales.sum_others(e, a, precisions), scales.sum_others(y, a, precisions)

    def compute_moments(self, attribute: int, ascent: QueryAscent) -> list[FloatArray]:
        """Return P_k of each grade."""
        alpha, beta = self._differentiate(attribute, ascent.precisions)
        alpha, beta = (self.shares[:, None] * derivative for derivative in (alpha, beta))
        p, S, move = self.cells[attribute], self.pairs[attribute], self._along[:, attribute]
        Y = self.products[attribute]
        if isinstance(Y, TreeProducts):
            leaves = 2 * (alpha - beta * Y.compute_slopes(self.moves[:, attribute])).T @ p
            variants = len(self.structure.batched.grades[attribute].starts) - 1
            return list(leaves) if leaves.any() and (len(leaves) == 1 or variants > 1) else []
        diagonal = 2 * (alpha - beta * ~move[:, None]).T @ p
        moments = -2 * np.tensordot(beta[move].T, S, 1)
        n = p.shape[1]
        moments[:, range(n), range(n)] += diagonal
        moments += self._profiles.sum_moments(attribute, self.costly_weights, ascent.precisions)
        scale = moments.trace(axis1=1, axis2=2) / n
        if not (scale > 0).any():
            return []
        moments[:, range(n), range(n)] += _JITTER * np.maximum(scale, 0.0)[:, None]
        return [
            moment if size > 0 else 0 * moment for moment, size in zip(moments, scale, strict=True)
        ]

    def ascend(self, ascent: QueryAscent, mixing: float, power: float) -> PairShares:
        """Return weights raised where pairs cost more than on average."""
        spent = self._costs @ ascent.precisions
        grown = self.shares * (spent / ascent.total) ** power
        cells, weights = list(self.cells), list(self.pairs)
        sides = None if self.sides is None else list(self.sides)
        e, y = self._means
        average = np.maximum(spent, 1e-300)[:, None]
        for a, Y in enumerate(self.products):
            if self.structure.batched.symmetric[a]:
                continue
            alpha, beta = self._differentiate(a, ascent.precisions)
            move = self._along[:, a]
            others = spent - 2 * (alpha * e[a][:, 1:] - beta * y[a][:, 1:]).sum(axis=1)
            if isinstance(Y, TreeProducts):
                stay = 2 * Y.multiply(Y.eta, alpha, beta, self.moves[:, a])
                stay = np.maximum(stay + others[:, None], 0.0)
                gains = (stay / average) ** power if sides is None else self.shares @ stay
                cells[a] = ascend_leaves(self.cells[a], gains, mixing)
                continue
            # The average cost of each pair of values over the other attributes' values.
            eta = np.diagonal(Y, axis1=1, axis2=2)
            stay = 2 * (alpha - beta) @ eta + others[:, None]
            first = alpha[move] @ eta
            apart = first[:, :, None] + first[:, None, :] + others[move][:, None, None]
            apart -= 2 * np.tensordot(beta[move], Y, 1)
            stay, apart = np.maximum(stay, 0.0), np.maximum(apart, 0.0)
            if sides is not None:
                p, s = self.cells[a], sides[a]
                mean, sides[a] = ascend_shared_pairs(
                    p[0], s, self.shares, move, stay, apart, mixing
                )
                cells[a] = np.broadcast_to(mean, p.shape)
                weights[a] = np.broadcast_to(join_sides(mean, sides[a]), weights[a].shape)
            else:
                stay = (stay / average) ** power
                apart = (apart / average[move][:, :, None]) ** power
                cells[a], weights[a] = ascend_pairs(
                    self.cells[a], self.pairs[a], move, stay, apart, mixing
                )
        reached = self._profiles.multiply(ascent.precisions)
        costly_grown = self.costly_weights * (reached / ascent.total) ** power
        grown = np.concatenate([grown, costly_grown])
        shares, costly = np.split(mix_with_uniform(grown / grown.sum(), mixing), [len(self.shares)])
        return replace(
            self,
            shares=shares,
            costly_weights=costly,
            cells=tuple(cells),
            pairs=tuple(weights),
            sides=None if sides is None else tuple(sides),
        )

    def scale(
        self, rows: VarianceMatrix, tolerance: float, near: FamilyMember | None
    ) -> tuple[Scales, PairProfiles]:
        """Find the best scales for the covariances, and the costs of costly pairs."""
        start: Scales | None = None
        measure = partial(PairProfiles.of_pairs, self.structure, self.products)
        if near is None:
            profiles = measure(self._draw_pairs()).cover()
        else:
            known, weights = near.profiles, near.scales.cells
            assert isinstance(known, PairProfiles)
            if any(self.structure.trees):
                # Each pair stands for many leaves, so only costly ones remain.
                pairs = known.cells[known.find_heavy(weights)]
            else:
                pairs = np.concatenate([self._draw_pairs(), known.cells])
            profiles = measure(pairs).cover()
            start = replace(near.scales, cells=known.spread(weights, profiles))
        for _ in range(_SEARCHES):
            scales = optimise_scales(rows, profiles, tolerance=tolerance / 4, near=start)
            precisions = invert_scales(scales.z)
            most = float(profiles.multiply(precisions).max())
            wider, reached = profiles.search(precisions)
            if reached <= most * (1 + tolerance):
                break
            start = scales = replace(scales, cells=profiles.spread(scales.cells, wider))
            profiles = wider
        worst = float(rows.multiply(scales.z).max())
        upper = float(np.sqrt(max(most, reached) * worst))
        return replace(scales, upper=upper), profiles

    def refine(self, profiles: Profiles) -> PairShares:
        """Return weights with a small share for new costly pairs, individually."""
        assert isinstance(profiles, PairProfiles)
        if any(self.structure.trees):
            return self._leave_out(self.shares > _LEAST_SHARE * self.shares.max())
        heavy = self.costly_weights > _LEAST_COSTLY / max(len(self.costly_weights), 1)
        known = {pair.tobytes() for pair in self.costly[heavy]}
        is_new = np.array([pair.tobytes() not in known for pair in profiles.cells])
        costly = np.concatenate([self.costly[heavy], profiles.cells[is_new]])
        given = np.full(int(is_new.sum()), _GIVEN / max(int(is_new.sum()), 1))
        weights = np.concatenate([self.costly_weights[heavy], given])
        order = np.lexsort(costly.reshape(len(costly), -1).T[::-1])
        total = float(self.shares.sum() + weights.sum())
        return replace(
            self,
            shares=self.shares / total,
            costly=costly[order],
            costly_weights=weights[order] / total,
        )

    def _draw_pairs(self) -> IntArray:
        """Draw pairs of cells by their weights; a symmetric attribute has the values 0 and 1."""
        drawn = []
        rng = np.random.default_rng(0)  # A constant seed, so that designs are reproducible.
        for t, move in enumerate(self.moves):
            for _ in range(_STARTS):
                first, second = np.zeros((2, len(move)), dtype=np.int64)
                for a, n in enumerate(self.structure.sizes):
                    if not self.pairs[a].shape[1]:
                        second[a] = move[a]
                    elif move[a]:
                        S = self.pairs[a][int(self._along[:t, a].sum())]
                        flat = S.ravel()
                        first[a], second[a] = divmod(int(rng.choice(n * n, p=flat / flat.sum())), n)
                    else:
                        p = self.cells[a][t]
                        first[a] = second[a] = int(rng.choice(n, p=p / p.sum()))
                drawn.append((first, second))
        return np.array(drawn)

    def _leave_out(self, remain: BoolArray) -> PairShares:
        """Return the weights of some moves (t,) alone."""
        shares = self.shares[remain]
        return replace(
            self,
            moves=self.moves[remain],
            shares=shares / shares.sum(),
            cells=tuple(p[remain] for p in self.cells),
            pairs=tuple(
                S[remain[along]] for S, along in zip(self.pairs, self._along.T, strict=True)
            ),
        )

    def share(self) -> PairShares:
        """Return nearby weights for which all moves share one p and one s per attribute."""
        cells, pairs, sides = [], [], []
        for p, S, move in zip(self.cells, self.pairs, self._along.T, strict=True):
            n = S.shape[1]
            mean = self.shares @ p
            if not n:
                cells.append(np.broadcast_to(mean, p.shape))
                pairs.append(S)
                sides.append(np.zeros(0))
                continue
            side = np.zeros(n)
            if len(S):
                root = np.sqrt(mean)
                whole = np.tensordot(self.shares[move], S, 1)
                _, U = np.linalg.eigh(whole / np.outer(root, root))
                side = U[:, 0] / root
                side /= np.abs(side).max()
            cells.append(np.broadcast_to(mean, p.shape))
            pairs.append(np.broadcast_to(join_sides(mean, side), S.shape))
            sides.append(side)
        return replace(
            self,
            shares=self.shares / self.shares.sum(),
            cells=tuple(cells),
            pairs=tuple(pairs),
            costly=self.costly[:0],
            costly_weights=np.zeros(0),
            sides=tuple(sides),
        )

    def list_weights(self) -> tuple[tuple[FloatArray, ...], PairWeights | None]:
        """List the weights of cells and of pairs, if all moves share p and s."""
        assert self.sides is not None
        cells = tuple(p[0] if p.shape[1] else np.ones(1) for p in self.cells)
        structure, ways = self.structure, np.minimum(self.moves, 1)
        for a, grades in enumerate(structure.batched.grades):
            if grades.tree is not None:
                ways[:, a] += self.moves[:, a] == grades.tree.steps
        listed = (structure.moves.astype(np.int64) + structure.near).tolist()
        every = np.zeros(len(listed))
        for way, share in zip(ways.tolist(), self.shares.tolist(), strict=True):
            every[listed.index(way)] += share
        counts = count_sides(structure).tolist()
        sides = tuple(s if n else np.zeros(0) for s, n in zip(self.sides, counts, strict=True))
        return cells, PairWeights(structure.moves, structure.near, every, sides)
