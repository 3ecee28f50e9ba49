# fitplug.families.base.integer_limits

MAX_ENTRY = 2**52

SATURATION = 2**62

# fitplug.families.base.strategies


def answer_exactly(strategy, read_counts):
    structure = strategy.structure
    if structure.shares > 1:
        read_counts = partial(read_in_shares, structure, read_counts)  # `\label{line:partial}`
    return find_form(structure).answer_exactly(strategy, read_counts)


# fitplug.families.base.shares


def read_in_shares(structure, read_counts, names):
    others = structure.shares // structure.workload.domain.count_shares(names)
    return make_room(np.asarray(read_counts(names)), others) * others  # `\label{line:others}`


# fitplug.families.base.answers


def answer_blocks(strategy, read_counts):
    answers = np.zeros(strategy.released_size, dtype=np.int64)
    for block_set, i, _, start in list_blocks(strategy):
        block = int(block_set.blocks[i])
        counts = block_set.basis.multiply_counts(
            strategy.structure, block, read_counts
        )
        own = measure_block(strategy, block_set, i, counts)
        answers[start : start + own.size] = own
    return answers


def measure_block(strategy, block_set, i, counts):
    (own,) = strategy.structure.subsets.list_attributes(block_set.blocks[i : i + 1])
    y = counts
    for axis, matrix in enumerate(strategy.attribute_matrices[a] for a in own):
        y = matrix.apply(make_room(y, matrix.growth), axis)  # `\label{line:apply}`
    if y.size:
        y = multiply_exactly(y.reshape(-1, y.shape[-1]), block_set.M[i].T)  # `\label{line:multiply}`
        multiples = strategy.spread_multiples(int(block_set.blocks[i]))
        if multiples is not None:
            y = multiply_numbers(y, multiples.reshape(-1, 1))  # `\label{line:multiples}`
    return np.asarray(np.clip(y, -SATURATION, SATURATION).ravel(), dtype=np.int64)  # `\label{line:clip}`


# fitplug.families.blocks.strategy.public_totals


def append_totals(strategy, answers, read_counts):
    public = strategy.structure.public_attributes
    assert public is not None
    totals = np.clip(
        np.asarray(read_counts(public)).ravel(), -SATURATION, SATURATION
    )
    answers[strategy.size :] = totals.astype(np.int64)  # `\label{line:totals}`
    return answers


class PublicTotalsForm:
    def answer_exactly(self, strategy, read_counts):
        return append_totals(
            strategy, super().answer_exactly(strategy, read_counts), read_counts
        )


# fitplug.families.base.basis


class Reading:
    def multiply(self, counts):
        if self.queries is not None:
            x = counts.reshape(-1, self.queries.shape[1])
            return multiply_exactly(x, self.queries.T)  # `\label{line:queries}`
        assert self.classes is not None
        x = counts.reshape(-1, len(self.classes))
        if len(self.classes) == 1:
            return x
        if find_largest_entry(x) * len(self.classes) >= 2**62:  # `\label{line:classes}`
            x = x.astype(object)
        queried = np.flatnonzero(self.classes >= 0)
        merged = np.zeros((len(self.rows), len(x)), dtype=x.dtype)
        np.add.at(merged, self.classes[queried], x.T[queried])
        return merged.T


class Basis:
    def multiply_counts(self, structure, block, read_counts):
        own = structure.name_attributes(block)
        shape = structure.workload.domain.shape_of(own)
        parts = [
            (reading, reading.multiply(read_counts(own + reading.dense)))
            for reading in self.list_readings(structure, block)
        ]
        kind = np.result_type(*(found.dtype for _, found in parts))
        product = np.zeros((math.prod(shape), self.size), dtype=kind)
        for reading, found in parts:
            product[:, reading.rows] = found
        return product.reshape(*shape, self.size)


# fitplug.numeric.exact


def find_largest_entry(a):
    return max(int(a.max()), -int(a.min()))


def make_room(values, growth):
    if values.dtype.kind not in "iu":  # `\label{line:python}`
        return values
    if not values.size or find_largest_entry(values) * growth < 2**63:  # `\label{line:room}`
        return np.asarray(values, dtype=np.int64)
    return values.astype(object)


def multiply_exactly(a, b):
    sizes = (find_largest_entry(a), find_largest_entry(b))
    bound = a.shape[-1] * sizes[0] * sizes[1]
    if bound < 2**53:  # `\label{line:floats}`
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    if sizes[0] < sizes[1]:
        return multiply_exactly(b.swapaxes(-1, -2), a.swapaxes(-1, -2)).swapaxes(
            -1, -2
        )
    shift = sizes[0].bit_length() // 2
    high, low = (a >> shift, a & 2**shift - 1)
    dtype = np.int64 if bound < 2**63 else object  # `\label{line:dtype}`
    upper, lower = (
        multiply_exactly(digits, b).astype(dtype) for digits in (high, low)
    )
    return np.asarray(upper * 2**shift + lower)  # `\label{line:digits}`


def multiply_numbers(values, numbers):
    if not values.size:
        return values
    room = make_room(values, find_largest_entry(numbers))
    return np.asarray(room * numbers.astype(room.dtype))
