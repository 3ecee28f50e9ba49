"""The optimum of a tree's family where neighbours replace a record.

It is that of `fitplug.families.tree.design.descent` with the prices of `pair_family`. The weights p
of leaves are those of each dense cell apart, and kinds of pairs have weights as well
(`fitplug.families.tree.shape.pairs`). A step multiplies each of these by the mean cost of the pairs
of cells of its kind. What is made least is half of the mean cost of a pair at these weights.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fitplug.families.base.family import Duals, certify_bound
from fitplug.families.base.objective import Objective
from fitplug.families.tree.design.bound_ascent import ascend_pair_rows, average_where_large
from fitplug.families.tree.design.child_covariances import get_diagonals
from fitplug.families.tree.design.descent import Start, TreeDescent, TreeMember
from fitplug.families.tree.design.family import Sweep, TreeFamily
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import FloatArray
from fitplug.solve import MIXING, Iterate, Options, mix_with_uniform, normalise_logarithms

_LEFT = 1e-4
"""The variance that public sums keep, relative to what they would have."""

_LARGEST = 1 - 1e-6
"""The largest part of theta that is taken off where totals are not public."""

_RIDGE = 1e-12
"""The weight of directions that no query asks for, relative to the others."""


class TreePairFamily(TreeFamily):
    """The family of a block.

    Attributes:
        theta: What is taken off the price of the root's classes of dense cells, shape (r, r).
    """

    def __init__(self, structure: TreePairStructure, block: int) -> None:
        super().__init__(structure, block)
        r = self.classes[0].size
        self.theta: FloatArray = np.zeros((r, r))
        self._sums = structure.find_totals(block)

    def _find_root(self, P: FloatArray, K: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        if self._sums.count:
            return self._find_public_root(P[0], K[0])
        mean = find_full_mean(np.diag(P[0]) - _LARGEST * self.theta, K[0])
        precision: FloatArray = np.asarray(np.linalg.inv(mean))[None]
        return mean[None], precision, get_diagonals(precision)

    def _find_public_root(
        self, p: FloatArray, K: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Find the covariance of the root, whose totals are public, its inverse and the profile."""
        sums = self._sums
        T = (np.arange(sums.count)[:, None] == sums.of_class).astype(np.float64)
        mass = T @ p
        # Each public sum keeps a little of the variance that it would have if it were measured.
        left = _LEFT * np.sqrt(mass / np.einsum("kc,cd,kd->k", T * p, K, T * p)) * mass
        S = np.einsum("k,kc,kd->cd", left / mass**2, T * p, T * p)
        precision = np.zeros((1, *K.shape))
        if len(sums.measured):
            G, kept = sums.reduction.astype(np.float64), np.ix_(sums.measured, sums.measured)
            mean = find_full_mean((np.diag(p) - self.theta)[kept], G.T @ K @ G)
            precision[0][kept] = np.linalg.inv(mean)
            S = S + G @ mean @ G.T
        return S[None], precision, get_diagonals(precision)


def find_full_mean(P: FloatArray, K: FloatArray) -> FloatArray:
    """Find P # K^-1 for two matrices (n, n) > 0."""
    L = np.linalg.cholesky(P)
    N = L.T @ K @ L
    n = len(N)
    N[np.diag_indices(n)] += _RIDGE * np.trace(N) / n
    values, vectors = np.linalg.eigh(N)
    half = L @ vectors
    return np.asarray((half / np.sqrt(np.maximum(values, _RIDGE * values[-1]))) @ half.T)


def descend_tree_pairs(structure: TreePairStructure, options: Options) -> TreeMember:
    """Find the member of least mean cost of pairs of cells at the targets.

    Args:
        structure: The structure.
        options: How to solve. The tolerance is the relative gap to the optimum of the family that
            ends the iteration, and progress is called with that gap.

    Returns:
        The member, with the weights of leaves and dense cells and then those of kinds of pairs as
        p.

    Raises:
        DesignError: If the targets differ by too many orders of magnitude.
    """
    tolerance, progress = options.tolerance, options.progress
    descent = _PairDescent(structure, MIXING * tolerance)
    most = min(options.max_iterations, descent.count_worthwhile())
    found = descent.run(descent.first_weights, tolerance, most, progress)
    best, iterations = found.best_upper, found.iterations
    sweeps = descent.sweep_at(best.evaluation, *descent.split_all(best.x))
    proving = [best.x]
    if descent.split_totals(sweeps):
        # The weights of a larger family prove a better bound.
        more = descent.run(best.x, tolerance, most, progress)
        proving.append(more.best_upper.x)
        iterations += more.iterations
    duals = [descent.make_duals(x) for x in proving]
    duals.append(ascend_pair_rows(structure, duals[-1], tolerance))
    p, q, _ = max(duals, key=partial(certify_bound, structure, Objective(), 1.0))
    return TreeMember(
        sweeps=sweeps,
        p=p,
        q=q,
        upper=best.upper,
        iterations=iterations,
        stopped=found.stopped,
    )


class _PairDescent(TreeDescent):
    """The fixed-point map, of logarithms of p, q and the weights of kinds one after another.

    The weights p of the leaves sum to 1 / D for each of the D dense cells.
    """

    def __init__(self, structure: TreePairStructure, mixing: float) -> None:
        super().__init__(structure, Objective(), mixing)
        self.pairs = structure
        self.ratios = structure.move_ratios[self.blocks]
        even = np.ones(1)
        for a in structure.free.tolist():
            n = structure.sizes[a]
            even = np.concatenate([even / n, even * (n - 1) / n])
        first, second = structure.cell_pairs
        anywhere = np.outer(even, np.where(first < second, 2.0, 1.0)).ravel()
        alike = np.repeat(even[1:], structure.cells)
        own = [x / x.sum() * even[k:].sum() for k, x in enumerate((anywhere, alike)) if x.size]
        kinds = np.concatenate(own)
        self.even_kinds: FloatArray = kinds / kinds.sum()

    def build_family(self, block: int) -> TreeFamily:
        assert isinstance(self.structure, TreePairStructure)
        return TreePairFamily(self.structure, block)

    @property
    def first_weights(self) -> FloatArray:
        shares = [self.cell_shares, self.row_shares, self.even_kinds]
        return self.normalise(np.log(np.concatenate(shares)))

    def normalise(self, x: FloatArray) -> FloatArray:
        d, kinds = len(self.cell_shares), len(x) - self.pairs.kinds
        p = x[:d].reshape(-1, self.pairs.cells)
        p = p - p.max(axis=0)
        p = p - np.log(np.exp(p).sum(axis=0) * self.pairs.cells)
        rest = (normalise_logarithms(own) for own in (x[d:kinds], x[kinds:]))
        return np.concatenate([p.ravel(), *rest])

    def split_all(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Split logarithms of weights into p, q and the weights of kinds."""
        at = len(x) - self.pairs.kinds
        return *self.split(x[:at]), np.exp(x[at:])

    def make_duals(self, x: FloatArray) -> Duals:
        """Make the dual weights of logarithms of weights."""
        p, q, kinds = self.split_all(x)
        kappas, _ = self.pairs.weigh_blocks(kinds)
        cells = (p.reshape(-1, self.pairs.cells) * kappas.max(axis=0)).ravel()
        return Duals(np.concatenate([average_where_large(self.pairs, cells), kinds]), q)

    def sweep_at(
        self, start: Start, p: FloatArray, q: FloatArray, kinds: FloatArray
    ) -> tuple[Sweep, ...]:
        """Sweep over the trees of all blocks at weights p (leaves * D,), q (rows,), of kinds."""
        structure = self.pairs
        D, rows = structure.cells, q / structure.targets
        kappas, thetas = (own[self.blocks] for own in structure.weigh_blocks(kinds))
        cells = structure.tree.sum_leaves(p.reshape(-1, D) * D)
        sweeps = []
        for i, (family, own) in enumerate(zip(self.families, start, strict=True)):
            assert isinstance(family, TreePairFamily)
            merge = family.classes[0].merge_counts
            theta = merge(merge(structure.unfold_pairs(thetas[i])).T)
            family.theta = self.multiples[i] * theta
            sweeps.append(family.sweep(own, self.multiples[i] * kappas[i] * cells, rows))
        return tuple(sweeps)

    def evaluate(self, x: FloatArray) -> Iterate[Start] | None:
        p, q, kinds = self.split_all(x)
        with np.errstate(all="ignore"):
            try:
                sweeps = self.sweep_at(self._start, p, q, kinds)
            except np.linalg.LinAlgError:
                return None
            _, h, _ = self._measure(sweeps)
            g, of_kinds, largest = self._measure_kinds(sweeps, p, kinds)
            cost, spread = float(kinds @ of_kinds), float(q @ h)
            if not (0 < cost < math.inf and 0 < spread < math.inf):
                return None
            mixing = self.mixing
            following = np.concatenate(
                [
                    (p * g + mixing * self.cell_shares) / (1 + mixing),
                    (q * h / spread + mixing * self.row_shares) / (1 + mixing),
                    mix_with_uniform(kinds * np.maximum(of_kinds, 0) / cost, mixing),
                ]
            )
        upper = largest * float(h.max())
        return self.conclude(x, following, sweeps, (cost * spread, upper))

    def _measure_kinds(
        self, sweeps: tuple[Sweep, ...], p: FloatArray, kinds: FloatArray
    ) -> tuple[FloatArray, FloatArray, float]:
        """Measure what pairs of cells cost.

        Args:
            sweeps: What the sweeps found.
            p: The weights of leaves and dense cells.
            kinds: The weights of kinds of pairs.

        Returns:
            What the weights of leaves are multiplied by, shape (leaves * D,), half of the mean cost
            of pairs of each kind, (kinds,), and about the largest.
        """
        structure = self.pairs
        first, second = structure.cell_pairs
        kappas, _ = structure.weigh_blocks(kinds)
        shape = (len(sweeps), -1, structure.cells)
        profiles = np.stack([sweep.profile for sweep in sweeps]).reshape(shape)
        profiles = self.multiples[:, None, None] * profiles
        leaves = p.reshape(1, -1, structure.cells) * structure.cells
        means, most = (profiles * leaves).sum(axis=1), profiles.sum(axis=0).max(axis=0)
        # Pairs that differ along a move alone.
        moved = 1 - self.ratios[:, 1:].T
        alike = moved @ means
        flat = profiles.reshape(len(sweeps), -1)
        largest = max((float((one @ flat).max()) for one in moved), default=0.0)
        shared = np.zeros((len(sweeps), len(first)))
        for i, (family, sweep) in enumerate(zip(self.families, sweeps, strict=True)):
            of_cell = family.classes[0].of_cell
            root = np.pad(sweep.root[1], ((0, 1), (0, 1)))
            shared[i] = self.multiples[i] * root[of_cell[first], of_cell[second]]
        shared = self.ratios.T @ shared
        total = means.sum(axis=0)
        anywhere = (total[first] + total[second]) / 2 - shared
        if shared.size:
            largest = max(largest, float(((most[first] + most[second]) / 2 - shared).max()))
        g = np.einsum("bc,blc->lc", kappas[self.blocks], profiles)
        sums = (g * leaves[0]).sum(axis=0)
        # Cells that no query counts cost nothing, and their weights stay as they are.
        g = np.divide(g, sums, out=np.ones_like(g), where=sums > 0)
        return g.ravel(), np.concatenate([anywhere.ravel(), alike.ravel()]), largest
