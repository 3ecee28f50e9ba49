# fitplug.families.base.strategy


class IntegerStrategy:
    def compute_cost(self):
        cost = self.compute_record_cost().multiply(self.structure.changes)
        return cost.count_in_shares(self.structure.shares)  # `\label{line:order}`


# fitplug.families.base.mechanism


class StrategyCost:
    def multiply(self, times):
        if times == 1:
            return self
        squares = self.column_squares * float(times**2) * (1 + 4 * UNIT_ROUNDOFF)
        return StrategyCost(
            self.sensitivity_squared * times**2, squares, self.max_records  # `\label{line:times}`
        )

    def count_in_shares(self, shares):
        return self.multiply(shares)._replace(max_records=self.max_records // shares)


# fitplug.families.blocks.strategy.matrices


class BlockSetStrategy:
    def compute_record_cost(self, claimed=None):
        column = []
        entry = 1
        for block_set in self.block_sets:
            squares = self.structure.subsets.multiply(
                [matrix.column_square for matrix in self.attribute_matrices],
                block_set.blocks,
            )
            entries = self.structure.subsets.multiply(
                [matrix.largest_entry for matrix in self.attribute_matrices],
                block_set.blocks,
            )
            m = block_set.M[:, 0, 0].astype(object)
            column.append(
                (int((squares * m * m).sum()), np.ones((1, 1), dtype=np.int64))  # `\label{line:onecell}`
            )
            entry = max(entry, int((entries * m).max()))
        return StrategyCost(*sum_column_squares(column), SATURATION // entry)


class MatrixStrategy:
    def compute_record_cost(self, claimed=None):
        if self.structure.has_numbers:
            return super().compute_record_cost(claimed)
        columns = []
        entry = 1
        for block_set in self.block_sets:
            (square,) = self.structure.subsets.multiply(
                [matrix.column_square for matrix in self.attribute_matrices],
                block_set.blocks,
            )
            (largest_entry,) = self.structure.subsets.multiply(
                [matrix.largest_entry for matrix in self.attribute_matrices],
                block_set.blocks,
            )
            A = multiply_basis(self.structure, block_set)
            columns.append((int(square), A))
            entry = max(entry, int(largest_entry) * find_largest_entry(A))
        return StrategyCost(*sum_column_squares(columns), SATURATION // entry)


def multiply_basis(structure, block_set):
    matrix = structure.build_block_matrix(int(block_set.blocks[0]))
    return multiply_exactly(  # `\label{line:A}`
        block_set.M[0], block_set.basis.build_matrix(matrix)
    )


def sum_column_squares(parts):
    near = np.sum(
        [float(f) * (A.astype(np.float64) ** 2).sum(axis=0) for f, A in parts],
        axis=0,
    )
    error = gamma(sum(len(A) for _, A in parts) + 4)
    candidates = np.flatnonzero(near >= near.max() * (1 - 4 * error))  # `\label{line:candidates}`
    stacked = [(f, A[:, candidates].T.tolist()) for f, A in parts]
    different = {
        tuple(map(tuple, column))
        for column in zip(*(A for _, A in stacked), strict=True)
    }
    multiples = [f for f, _ in parts]
    exact = max(  # `\label{line:exact}`
        sum(
            f * sum(a * a for a in entries)
            for f, entries in zip(multiples, column, strict=True)
        )
        for column in different
    )
    return (exact, np.asarray(near * (1 + error)))


# fitplug.families.blocks.strategy.differences


class PairStrategy:
    def compute_record_cost(self, claimed=None):
        structure = self.structure
        same, other = multiply_contrasts(structure)
        entries = [build_contrasts(n).largest_entry for n in structure.sizes]
        block_sets = sorted(
            self.block_sets, key=lambda block_set: int(block_set.blocks[0])
        )
        columns, squares, bound, entry = ([], [], 0, 1)
        for block_set in block_sets:
            A = multiply_basis(structure, block_set)[:, structure.pairs.cells]  # `\label{line:columns}`
            columns.append(A)
            wide = make_room(A, len(A) * find_largest_entry(A))
            squares.append((wide * wide).sum(axis=0))
            (square,) = structure.subsets.multiply(same, block_set.blocks)
            bound += int(square) * int(squares[-1].max())
            (largest,) = structure.subsets.multiply(entries, block_set.blocks)
            entry = max(entry, int(largest) * find_largest_entry(A))
        kind = np.int64 if bound < 2**60 else object  # `\label{line:wide}`
        largest_costs = np.zeros(structure.pairs.nodes, dtype=kind)
        of_nodes = structure.sum_products(
            [each.astype(kind) for each in squares], same, other
        )[0]
        read = [np.flatnonzero(A.any(axis=0)) for A in columns]  # `\label{line:read}`
        parts = list(zip(columns, read, structure.multiply_others(same), strict=True))
        for i, j in structure.pairs.list_tiles():  # `\label{line:tiles}`
            table = np.zeros(
                (structure.pairs.sets, i.stop - i.start, j.stop - j.start), dtype=kind
            )
            for A, at, (place, multiple) in parts:
                rows, others = (
                    at[np.searchsorted(at, nodes.start) : np.searchsorted(at, nodes.stop)]
                    for nodes in (i, j)
                )
                if len(rows) and len(others):
                    gram = multiply_exactly(A[:, rows].T, A[:, others]).astype(kind)  # `\label{line:gram}`
                    table[place][np.ix_(rows - i.start, others - j.start)] += multiple * gram  # `\label{line:place}`
            least = structure.mix_products(table, same, other, j).min(axis=0)
            costs = of_nodes[i, None] + of_nodes[j] - 2 * least  # `\label{line:pair}`
            largest_costs[i] = np.maximum(largest_costs[i], costs.max(axis=1))
            largest_costs[j] = np.maximum(largest_costs[j], costs.max(axis=0))
        above = largest_costs.astype(np.float64) * (1 + 4 * UNIT_ROUNDOFF)
        most = int(largest_costs.max())
        return StrategyCost(
            most, above[structure.pairs.node_of_cell], SATURATION // entry
        )


def multiply_contrasts(structure):
    contrasts = make_contrasts(structure)
    same = [matrix.column_square for matrix in contrasts]
    other = [-(matrix.precision // matrix.n) for matrix in contrasts]  # `\label{line:between}`
    assert all(
        b * m.n == -m.precision for b, m in zip(other, contrasts, strict=True)
    )
    return (same, other)


# fitplug.families.blocks.shape.pairs


class PairStructure:
    def sum_products(self, matrices, same, other, nodes=slice(None)):
        table = np.zeros(0)
        for matrix, (place, multiple) in zip(matrices, self.multiply_others(same), strict=True):
            if not table.size:
                table = np.zeros((self.pairs.sets, *matrix.shape), dtype=matrix.dtype)
            table[place] += multiple * matrix
        return self.mix_products(table, same, other, nodes)

    def multiply_others(self, same):
        return [(place, math.prod(same[a] for a in others)) for place, others in self._places]

    def mix_products(self, table, same, other, nodes=slice(None)):
        for digit in range(len(self.movable)):
            a, b = (self.take_numbers(each, digit, nodes) for each in (same, other))
            table = mix_sets(table, (1, a), (1, b), digit)  # `\label{line:mix}`
        return table

    @cached_property
    def movable(self):
        return tuple((a,) for a in self.free.tolist())

    def take_numbers(self, numbers, digit, nodes):
        return numbers[self.movable[digit][0]]


# fitplug.neighbours.cell_pairs


def mix_sets(table, out, moved, bit):
    halves = table.reshape(-1, 2, 2**bit, *table.shape[1:])
    mixed = np.stack(
        [a * halves[:, 0] + b * halves[:, 1] for a, b in (out, moved)], axis=1
    )
    return mixed.reshape(table.shape)


class CellPairs:
    @property
    def region_slices(self):
        stops = np.cumsum(self.region_sizes)
        starts = stops - self.region_sizes
        return [
            slice(i, j)
            for i, j in zip(starts.tolist(), stops.tolist(), strict=True)
        ]

    def list_tiles(self):
        for region in self.region_slices:
            step = max(1, TILE // ((region.stop - region.start) * self.sets))
            for start in range(region.start, region.stop, step):
                yield (slice(start, min(start + step, region.stop)), slice(start, region.stop))
