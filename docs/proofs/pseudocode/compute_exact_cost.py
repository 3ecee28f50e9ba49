# fitplug.mechanism.dispatch


def compute_exact_cost(structure, block_sets, attribute_matrices, tree_blocks=()):
    integers = Integers(block_sets, attribute_matrices, tree_blocks)
    once = _FORMS[type(structure)].compute_exact_cost(structure, integers)
    return count_in_shares(multiply_changes(once, structure.changes), structure)  # `\label{line:order}`


# fitplug.mechanism.shares


def multiply_changes(cost, changes):
    if changes == 1:
        return cost
    squares = cost.column_squares * float(changes**2) * (1 + 4 * UNIT_ROUNDOFF)
    return ExactCost(
        cost.sensitivity_squared * changes**2, squares, cost.max_records  # `\label{line:changes}`
    )


def count_in_shares(cost, structure):
    shares = structure.shares
    if shares == 1:
        return cost
    squares = cost.column_squares * float(shares**2) * (1 + 4 * UNIT_ROUNDOFF)
    return ExactCost(
        cost.sensitivity_squared * shares**2, squares, cost.max_records // shares  # `\label{line:shares}`
    )


# fitplug.mechanism.matrix_form


class MatrixForm:
    def compute_exact_cost(self, structure, integers):
        columns = []
        entry = 1
        for block_set in integers.block_sets:
            (square,) = structure.subsets.multiply(
                [matrix.column_square for matrix in integers.attribute_matrices],
                block_set.blocks,
            )
            (largest_entry,) = structure.subsets.multiply(
                [matrix.largest_entry for matrix in integers.attribute_matrices],
                block_set.blocks,
            )
            matrix = structure.build_block_matrix(int(block_set.blocks[0]))
            A = multiply_exactly(  # `\label{line:A}`
                block_set.M[0], block_set.basis.build_matrix(matrix)
            )
            columns.append((int(square), A))
            entry = max(entry, int(largest_entry) * find_largest_entry(A))
        return ExactCost(*sum_column_squares(columns), SATURATION // entry)


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
            f * sum(a * a for a in own)
            for f, own in zip(multiples, column, strict=True)
        )
        for column in different
    )
    return (exact, np.asarray(near * (1 + error)))


# fitplug.mechanism.scalar_form


class OneCellForm:
    def compute_exact_cost(self, structure, integers):
        column = []
        entry = 1
        for block_set in integers.block_sets:
            squares = structure.subsets.multiply(
                [matrix.column_square for matrix in integers.attribute_matrices],
                block_set.blocks,
            )
            entries = structure.subsets.multiply(
                [matrix.largest_entry for matrix in integers.attribute_matrices],
                block_set.blocks,
            )
            m = block_set.M[:, 0, 0].astype(object)
            column.append(
                (int((squares * m * m).sum()), np.ones((1, 1), dtype=np.int64))  # `\label{line:onecell}`
            )
            entry = max(entry, int((entries * m).max()))
        return ExactCost(*sum_column_squares(column), SATURATION // entry)


# fitplug.mechanism.pair_form


class PairForm:
    def compute_exact_cost(self, structure, integers):
        (block_set,) = integers.block_sets
        pairs = structure.pairs
        M = block_set.M[0]
        padded = np.concatenate([M, np.zeros((len(M), 1), dtype=np.int64)], axis=1)
        columns = padded[:, block_set.basis.index[pairs.cells]]  # `\label{line:columns}`
        gram = multiply_exactly(columns.T, columns)  # `\label{line:gram}`
        if find_largest_entry(gram) >= 2**60:  # `\label{line:wide}`
            gram = gram.astype(object)
        costs = pairs.measure_pairs(gram)
        above = pairs.find_largest(costs).astype(np.float64) * (
            1 + 4 * UNIT_ROUNDOFF
        )
        entry = max(1, find_largest_entry(M))
        return ExactCost(int(costs.max()), above, SATURATION // entry)


# fitplug.structure.cell_pairs


class CellPairs:
    def measure_pairs(self, gram):
        first, second = self.ends
        own = gram.diagonal()
        return np.asarray(own[first] + own[second] - 2 * gram[first, second])  # `\label{line:pair}`
