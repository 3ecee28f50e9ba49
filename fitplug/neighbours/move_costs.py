"""The costs of a record's moves: a polynomial in the attributes along which it moves.

Where all attributes are symmetric, a move along the set D of attributes costs

    f(D) = 2 sum_T w_T (1 - prod_{a in T} s_a),    s_a = r_a = -1 / (n_a - 1) if a is in D, else 1

(docs/theory/units.md, (U10)). The sets T are the attributes that blocks measure together, without
those that the unit keeps, and w_T > 0 are their weights.

The floats here steer a search whose results are the same on every machine: sums are taken in a
fixed order, and only sums, products, quotients and square roots are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.neighbours.cell_pairs import mix_sets
from fitplug.numeric import AnyArray, BoolArray, FloatArray, IntArray, frozen_property, to_positions

_MOST_FLIPS = 4
"""The most times, on average, that a search changes each attribute."""

MOST_LISTED = 18
"""The most attributes m for which all 2^m - 1 moves are tried."""

LARGEST_SUM = 2.0**47
"""The largest sum of all weights, so that floats hold a few times this sum exactly."""


@dataclass(frozen=True, eq=False)
class MoveCosts:
    """The polynomial f, for m attributes.

    Attributes:
        ratios: r_a of each attribute, and 1 after them, shape (m + 1,).
        members: The attributes of each set T, padded with m, shape (t, most).
        weights: w_T, shape (t,): integers up to `LARGEST_SUM` altogether.
    """

    ratios: FloatArray
    members: IntArray
    weights: FloatArray

    @classmethod
    def weigh(
        cls, ratios: FloatArray, sets: tuple[IntArray, IntArray], of_blocks: AnyArray
    ) -> tuple[MoveCosts, int]:
        """Sum the weights of blocks over the sets of attributes.

        Args:
            ratios: r_a of each attribute, and 1 after them.
            sets: The sets T, and the number of each block's set.
            of_blocks: The weight of each block, Python integers.

        Returns:
            The scaled costs of moves, rounded up, and the binary logarithm of the scale.
        """
        members, index = sets
        weights = np.zeros(len(members), dtype=object)
        np.add.at(weights, index, of_blocks)
        scaled, shift = scale_weights(weights)
        return cls(ratios, members, scaled), shift

    @property
    def size(self) -> int:
        """m, the number of attributes along which a record may move."""
        return len(self.ratios) - 1

    @frozen_property
    def _rows(self) -> tuple[IntArray, IntArray]:
        """The sets of each attribute, concatenated, and where each attribute's sets begin."""
        flat = self.members.ravel()
        order = np.argsort(flat, kind="stable")
        starts = np.searchsorted(flat[order], np.arange(self.size + 2))
        return order // self.members.shape[1], starts

    def place(self, move: BoolArray) -> FloatArray:
        """Compute s_a of a move (m,), and 1 after them, shape (m + 1,)."""
        return np.where(np.append(move, False), self.ratios, 1.0)

    def evaluate(self, moves: BoolArray) -> FloatArray:
        """Evaluate f at moves (v, m), up to rounding, shape (v,)."""
        costs = []
        for move in moves:
            product = self.weights.copy()
            for place in self.members.T:
                product *= self.place(move)[place]
            costs.append(2 * add_in_order(self.weights - product))
        return np.array(costs)

    def evaluate_all(self) -> FloatArray:
        """Evaluate f at all 2^m moves, up to rounding: move k has the binary digits of k."""
        bits = np.append(np.int64(1) << np.arange(self.size), 0)
        places = bits[self.members].sum(axis=1)
        ratios = self.ratios[:-1].tolist()
        return measure_all_moves(places, self.weights, [1.0] * self.size, ratios)

    def find_slopes(self, move: BoolArray) -> FloatArray:
        """Compute the sum of w_T prod_{b in T - a} s_b over the T with a, for each a, (m,)."""
        rest = _leave_one_out(self.place(move)[self.members]) * self.weights[:, None]
        return add_by_attribute(self.members, rest, self.size)

    def climb(self, start: BoolArray) -> BoolArray:
        """Change one attribute at a time, always the one that adds the most to the cost.

        Args:
            start: The move to start from, shape (m,).

        Returns:
            A nonempty move whose cost no single change increases, up to rounding.
        """
        move = start.copy()
        slopes, s = self.find_slopes(move), self.place(move)
        least = 1e-12 * add_in_order(self.weights)
        rows, starts = self._rows
        for _ in range(_MOST_FLIPS * self.size):
            gains = np.where(move, -slopes, slopes) * (1 - self.ratios[:-1])
            a = int(np.argmax(gains))
            if gains[a] <= least:
                break
            changed = rows[starts[a] : starts[a + 1]]
            members = self.members[changed]
            move[a] = not move[a]
            before, s[a] = s[a], self.ratios[a] if move[a] else 1.0
            values = s[members]
            values[members == a] = 1.0
            # w_T times the product of all but a and one more, times the change of s_a.
            rest = _leave_one_out(values) * (self.weights[changed] * (s[a] - before))[:, None]
            rest[members == a] = 0.0
            slopes = slopes + add_by_attribute(members, rest, self.size)
        if not move.any():
            move[int(np.argmax(slopes * (1 - self.ratios[:-1])))] = True
        return move

    def search(self, starts: Iterable[BoolArray]) -> BoolArray:
        """Climb from each start, and return the different moves found, the costliest first.

        Where all moves can be tried, the costliest of all is one of the starts.

        Returns:
            The moves, shape (v, m). No proof depends on whether one of them is the costliest.
        """
        if self.size <= MOST_LISTED:
            costliest = int(np.argmax(self.evaluate_all()))
            starts = [*starts, (costliest >> np.arange(self.size) & 1).astype(np.bool_)]
        moves = np.unique(np.array([self.climb(start) for start in starts]), axis=0)
        return moves[np.argsort(-self.evaluate(moves), kind="stable")]

    def list_starts(self) -> list[BoolArray]:
        """List moves from which a search begins: along all attributes, none, and some."""
        numbers = np.arange(self.size)
        return [numbers >= 0, numbers < 0, *(numbers % k > 0 for k in (2, 3, 5)), numbers % 2 == 0]


def measure_all_moves(
    places: IntArray,
    squares: AnyArray,
    same: Sequence[int] | Sequence[float],
    other: Sequence[int] | Sequence[float],
) -> AnyArray:
    """Compute the costs of all moves along m attributes, exactly if the numbers are integers.

    Args:
        places: The set T of attributes of each block, as binary digits, shape (b,).
        squares: The square of each block's column without these attributes, shape (b,).
        same: |H e_i|^2 of each attribute, shape (m,).
        other: (H e_i)' H e_j for two cells of each attribute.

    Returns:
        2 sum_T squares_T (prod_{a in T} same_a - prod_{a in T} (other_a if a is in D, else
        same_a)) for each set D, whose attributes are the binary digits of its index, shape (2^m,).
    """
    table = np.zeros(2 ** len(same), dtype=squares.dtype)
    np.add.at(table, to_positions(places), squares)
    for bit, (square, product) in enumerate(zip(same, other, strict=True)):
        table = mix_sets(table, (1, square), (1, product), bit)
    return np.asarray(2 * (table[0] - table))


def scale_weights(weights: AnyArray) -> tuple[FloatArray, int]:
    """Scale integers >= 0, rounded up, so that their sum is at most `LARGEST_SUM`.

    Args:
        weights: Python integers, shape (t,), fewer than 2^46 of them.

    Returns:
        The scaled weights, and the binary logarithm s of the scale: a weight is at most 2^s times
        its scaled weight.
    """
    s = int(weights.sum()).bit_length() - 46
    scaled = -(-weights >> s) if s > 0 else weights << -s
    return scaled.astype(np.float64), s


def undo_scale(bound: int, s: int) -> int:
    """Convert a bound on scaled costs to a bound on integer costs."""
    return bound << s if s > 0 else bound >> -s


def add_in_order(values: FloatArray) -> float:
    """Add values (n,) one after another: NumPy's own sum may take another order elsewhere."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def _leave_one_out(values: FloatArray) -> FloatArray:
    """For each entry of each row (t, k), multiply all other entries of the row."""
    ahead, behind = np.ones_like(values), np.ones_like(values)
    for i in range(1, values.shape[1]):
        ahead[:, i] = ahead[:, i - 1] * values[:, i - 1]
        behind[:, -1 - i] = behind[:, -i] * values[:, -i]
    return np.asarray(ahead * behind)


def add_by_attribute(members: IntArray, values: FloatArray, size: int) -> FloatArray:
    """Add values (t, k), or (t,) for all members of a set, by attribute, in order, (size,)."""
    each = np.broadcast_to(values if values.ndim == 2 else values[:, None], members.shape)
    sums = np.bincount(to_positions(members.ravel()), each.ravel(), minlength=size)
    return np.asarray(sums[:size], dtype=np.float64)
