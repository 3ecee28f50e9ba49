# fitplug.families.base.mechanism


MAX_ENTRY = 2**52


SATURATION = 2**62


# fitplug.families.base.strategy


class IntegerStrategy:
    def answer_exactly(self, read_counts):
        return cut_into_wholes(self).answer(read_counts)


@lru_cache(maxsize=2)
def cut_into_wholes(strategy):
    return strategy.cut(WHOLE)


# fitplug.families.base.parted_strategy


class PartedStrategy:
    def answer(self, read_counts):
        answers = np.zeros(self.released_size, dtype=np.int64)
        pieces = [
            self.split_counts(number, np.asarray(read_counts(slab.names))[slab.index])
            for number, slab in enumerate(self.slabs)
        ]
        for part in range(len(self.sizes)):
            pieces_of_part = {slab: pieces[slab][part] for slab in self.list_slabs(part)}
            answers[self.place(part)] = self.answer_part(part, pieces_of_part)  # `\label{line:place}`
        return answers

    def split_counts(self, slab, counts):
        described = self.slabs[slab]
        counts = read_slab_counts(described, self.structure, counts)
        pieces = self._split_counts(slab, counts)
        if len(self.sizes) > self.noisy_parts and slab in self._totals.slabs:
            return pieces.add(self.noisy_parts, partial(self._totals.split_counts, described, counts))
        return pieces

    def answer_part(self, part, pieces):
        check_pieces(pieces, self.list_slabs(part), f"part {part} of the answers")
        if self.is_public(part):
            return self._totals.add_pieces(self.slabs, pieces)
        return self._answer_part(part, pieces)


class PublicTotals:
    def split_counts(self, slab, counts):
        return pack_integers([sum_margin(counts, slab.names, self.names)])

    def add_pieces(self, slabs, pieces):
        totals = ExactTotals([self._shape])
        for number, piece in pieces.items():
            slab, values = (slabs[number], unpack_integers(piece))
            totals.make_room(values)
            range_of = slice(slab.start, slab.stop)
            axes = (range_of if name == slab.attribute else slice(None) for name in self.names)
            target = totals.totals[0][*axes, ...]
            target += values.reshape(target.shape)  # `\label{line:totals}`
        clamped = np.clip(totals.totals[0].ravel(), -SATURATION, SATURATION)  # `\label{line:public}`
        return np.asarray(clamped, dtype=np.int64)


# fitplug.families.base.pieces


def read_slab_counts(slab, structure, counts):
    domain = structure.workload.domain
    shape = slab.shape_in(domain)
    is_fitting = counts.dtype == object or np.can_cast(counts.dtype, np.int64)
    if counts.shape != shape or not is_fitting:
        raise TablesError(...)
    others = structure.shares // count_shares(domain, slab.names)
    if counts.dtype != object:
        counts = make_room(counts.astype(np.int64, copy=False), counts.size * others)
    return counts if others == 1 else np.asarray(counts * others)  # `\label{line:others}`


def sum_margin(counts, names, margin):
    rest = tuple((i for i, name in enumerate(names) if name not in margin))
    left = [name for name in names if name in margin]
    sums = np.asarray(counts.sum(axis=rest, dtype=counts.dtype) if rest else counts)  # `\label{line:sum}`
    return sums.transpose([left.index(name) for name in margin])


# fitplug.families.base.mechanism


def pack_integers(arrays):
    flat = [array.ravel() for array in arrays]
    if all((array.dtype != object for array in flat)):
        return np.concatenate([[1], *flat], dtype=np.int64)
    rest = np.concatenate([array.astype(object) for array in flat])
    digits = []
    while rest.size and (not _fits(rest)):
        digits.append(rest & 2**_BITS - 1)
        rest = rest >> _BITS
    digits.append(rest)
    return np.concatenate([[len(digits)], *(digit.astype(np.int64) for digit in digits)])  # `\label{line:pack}`


def unpack_integers(packed):
    digits = packed[1:].reshape(int(packed[0]), -1)
    if len(digits) == 1:
        return np.asarray(digits[0])
    integers = digits[-1].astype(object)
    for digit in digits[-2::-1]:
        integers = (integers << _BITS) + digit.astype(object)
    return np.asarray(integers)


class ExactTotals:
    def __init__(self, shapes):
        self.totals = [np.zeros(shape, dtype=np.int64) for shape in shapes]
        self._bound, self._is_int64 = (0, True)

    def make_room(self, values):
        if not self._is_int64 or not values.size:
            return
        self._bound += find_largest_entry(values)
        if values.dtype == object or self._bound >= 2**63:  # `\label{line:bound}`
            self.totals = [total.astype(object) for total in self.totals]
            self._is_int64 = False


def _fits(values):
    return int(values.max()) < 2**63 and int(values.min()) >= -(2**63)


# fitplug.families.blocks.strategy.parts


class PartedBlocks:
    def _split_counts(self, slab, counts):
        parts = self.parts_of_table[self.table_of_slab[slab]]
        return Pieces(parts, BlockCountSplit(self, slab, counts).make_piece)

    def _answer_part(self, part, pieces):
        counts = BlockCountGathering(self, part).add_pieces(pieces)
        cut_part = self.parts[part]
        blocks = self.blocks[cut_part.first : cut_part.last]
        if cut_part.columns is not None:
            return self._answer_columns(blocks[0], cut_part, counts[0])
        return np.concatenate(
            [
                self.strategy.measure_block(block.block_set, block.i, x)
                for block, x in zip(blocks, counts, strict=True)
            ]
        )


class BlockCountSplit:
    def make_piece(self, part):
        cut_part = self._cut.parts[part]
        if cut_part.columns is not None:
            first, last = cut_part.columns
            columns = self._multiply_columns(part)
            return pack_integers([product[:, first:last] for product in columns])
        readers = self._cut.list_readers(self._table, part)
        return pack_integers([self._multiply(k, reading) for k, reading in readers])

    def _multiply(self, k, reading):
        structure = self._strategy.structure
        names = self._cut.tables[self._table]
        attributes = [structure.block_attributes[a] for a in self._cut.blocks[k].attributes]
        return reading.multiply(sum_margin(self._counts, names, [*attributes, *reading.dense]))


class BlockCountGathering:
    def __init__(self, cut, part):
        self._cut, self._part, self._number, self._shapes = cut, cut.parts[part], part, []
        for block in cut.blocks[self._part.first : self._part.last]:
            sizes = [cut.strategy.structure.sizes[a] for a in block.attributes]
            if self._part.columns is not None:
                first, last = self._part.columns
                sizes = [sizes[cut.find_axis(block)], last - first]
            self._shapes.append((*sizes, block.shape[-1]))
        self._sums = ExactTotals(self._shapes)

    def add_pieces(self, pieces):
        for slab in pieces:
            values = unpack_integers(pieces[slab])
            self._sums.make_room(values)
            self._add_values(slab, values)
        return self._sums.totals

    def _add_values(self, slab, values):
        at, number, one = (0, self._cut.table_of_slab[slab], self._cut.slabs[slab])
        for k, reading in self._cut.list_readers(number, self._number):
            i = k - self._part.first
            shape = self._shapes[i]
            size, place = ([*shape[:-1], len(reading.rows)], [slice(None)] * (len(shape) - 1))
            axis = self._find_range_axis(k, one.attribute)
            if axis is not None:
                size[axis], place[axis] = (one.stop - one.start, slice(one.start, one.stop))
            end = at + math.prod(size)
            piece = values[at:end].reshape(size)
            target = self._sums.totals[i][tuple(place)]
            if len(reading.rows) == shape[-1]:
                target += piece
            else:
                target[..., reading.rows] += piece  # `\label{line:rows}`
            at = end


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


# fitplug.families.base.block_sets


class BlockSetIntegers:
    def measure_block(self, block_set, i, counts):
        block = int(block_set.blocks[i])
        (subset,) = self.structure.subsets.list_attributes([block])
        y = counts
        for axis, matrix in enumerate(self.find_matrix(a, block) for a in subset):
            y = matrix.apply(make_room(y, matrix.growth), axis)  # `\label{line:apply}`
        if y.size:
            y = multiply_exactly(y.reshape(-1, y.shape[-1]), block_set.M[i].T)  # `\label{line:multiply}`
            multiples = self.spread_multiples(block)
            if multiples is not None:
                y = multiply_numbers(y, multiples.reshape(-1, 1))  # `\label{line:multiples}`
        return np.asarray(np.clip(y, -SATURATION, SATURATION).ravel(), dtype=np.int64)  # `\label{line:clip}`


# fitplug.numeric.rounding


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
        return multiply_exactly(b.swapaxes(-1, -2), a.swapaxes(-1, -2)).swapaxes(-1, -2)
    shift = sizes[0].bit_length() // 2
    high, low = (a >> shift, a & 2**shift - 1)
    dtype = np.int64 if bound < 2**63 else object  # `\label{line:dtype}`
    upper, lower = (multiply_exactly(digits, b).astype(dtype) for digits in (high, low))
    return np.asarray(upper * 2**shift + lower)  # `\label{line:digits}`


def multiply_numbers(values, numbers):
    if not values.size:
        return values
    room = make_room(values, find_largest_entry(numbers))
    return np.asarray(room * numbers.astype(room.dtype))
