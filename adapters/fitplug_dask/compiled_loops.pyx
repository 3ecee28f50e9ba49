# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: freethreading_compatible=True
"""The loops over rows; `compiled_loops.pyi` says what each does.

They run without Python's lock, so that several threads count at once. No number that a file holds
is used as an index before it is compared with the length of the array.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define prefetch(address) __builtin_prefetch((address), 1)
    #else
    #define prefetch(address) ((void)(address))
    #endif
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define from_little_endian(word) __builtin_bswap64(word)
    #else
    #define from_little_endian(word) (word)
    #endif
    """
    void prefetch(const void *address) noexcept nogil
    uint64_t from_little_endian(uint64_t word) noexcept nogil

ctypedef fused Value:
    int8_t
    int16_t
    int32_t
    int64_t
    uint8_t
    uint16_t
    uint32_t

ctypedef fused Count:
    uint32_t
    int64_t

cdef enum:
    BLOCK = 2048  # cells that stay in the fastest cache while column after column adds to them
    CACHED = 1 << 15  # cells of a table that a core's own cache holds, beside the rows
    AHEAD = 24  # rows by which cells are fetched ahead
    LANES = 4  # counters of each cell of a table
    FEW = 1 << 10  # of so few cells

cdef struct Column:
    const uint8_t *values
    int width
    bint signed
    int64_t low
    const int64_t *terms
    int64_t count
    const uint8_t *valid
    int64_t first
    bint strict


def locate(columns, int64_t shared, int64_t[::1] cells):
    cdef Py_ssize_t c, i, start = 0, rows = cells.shape[0], count = len(columns)
    cdef bint clipped = False
    cdef const uint8_t[::1] values, bits
    cdef const int64_t[::1] terms
    if not rows:
        return
    cdef Column *read = <Column *>PyMem_Malloc(max(count, 1) * sizeof(Column))
    if read == NULL:
        raise MemoryError
    try:
        for c in range(count):
            numbers, read[c].low, terms, read[c].strict, _, valid, read[c].first = columns[c]
            kind = numbers.dtype
            wide = kind.kind == "u" and kind.itemsize == 8
            if kind.kind not in "iu" or wide or not kind.isnative:
                raise TypeError("values must be integers of up to 32 bits, or int64")
            if len(numbers) != rows or not terms.shape[0]:
                raise ValueError("there must be a term, and a value for each cell")
            values = numbers.view("u1")
            read[c].values, read[c].width = &values[0], kind.itemsize
            read[c].signed = kind.kind == "i"
            read[c].terms, read[c].count = &terms[0], terms.shape[0]
            read[c].valid = NULL
            if valid is None:
                continue
            bits = valid
            if read[c].first < 0 or 8 * bits.shape[0] < read[c].first + rows:
                raise ValueError("each value must have a bit that says whether it is there")
            read[c].valid, read[c].count = &bits[0], terms.shape[0] - 1
        with nogil:
            while start < rows:
                for i in range(start, min(start + BLOCK, rows)):
                    cells[i] = shared
                for c in range(count):
                    clipped |= add_terms(&read[c], start, min(BLOCK, rows - start), &cells[start])
                start += BLOCK
    finally:
        PyMem_Free(read)
    if clipped:
        raise IndexError("an index points nowhere")


cdef bint add_terms(
    const Column *column, Py_ssize_t start, Py_ssize_t rows, int64_t *cells
) noexcept nogil:
    """Add the terms of one column; return whether a strict column has an index beyond them."""
    cdef const uint8_t *values = column.values + start * column.width
    cdef bint clipped
    if column.width == 1 and column.signed:
        clipped = gather(<const int8_t *>values, column, start, rows, cells)
    elif column.width == 1:
        clipped = gather(<const uint8_t *>values, column, start, rows, cells)
    elif column.width == 2 and column.signed:
        clipped = gather(<const int16_t *>values, column, start, rows, cells)
    elif column.width == 2:
        clipped = gather(<const uint16_t *>values, column, start, rows, cells)
    elif column.width == 4 and column.signed:
        clipped = gather(<const int32_t *>values, column, start, rows, cells)
    elif column.width == 4:
        clipped = gather(<const uint32_t *>values, column, start, rows, cells)
    else:
        clipped = gather(<const int64_t *>values, column, start, rows, cells)
    return clipped and column.strict


cdef bint gather(
    const Value *values, const Column *column, Py_ssize_t start, Py_ssize_t rows, int64_t *cells
) noexcept nogil:
    cdef Py_ssize_t i, end, bit = column.first + start
    cdef const uint8_t *valid = column.valid
    cdef const int64_t *terms = column.terms
    cdef uint64_t at, bits, there, low = column.low, count = column.count
    cdef uint64_t last = max(column.count - 1, 0), null = column.count
    cdef bint clipped = False
    if valid == NULL:
        for i in range(rows):
            # Without a sign, numbers below `low` are larger than all that are above it.
            at = <uint64_t>(<int64_t>values[i]) - low
            if at >= count:
                clipped = True
                at = 0 if <int64_t>values[i] < column.low else last
            cells[i] += terms[at]
        return clipped
    i = 0
    while i < rows:
        # The bits of up to eight rows are read at once.
        bits = valid[bit >> 3] >> (bit & 7)
        end = min(rows, i + 8 - (bit & 7))
        bit += end - i
        while i < end:
            # Which values are there cannot be foreseen, so masks take the place of branches.
            there = -(bits & 1)
            bits >>= 1
            at = (<uint64_t>(<int64_t>values[i]) - low) & there
            if at >= count:
                clipped |= there & 1
                at = 0 if <int64_t>values[i] < column.low else last
            cells[i] += terms[at | (null & ~there)]
            i += 1
    return clipped


def increment(Count[::1] counter, const int64_t[::1] cells):
    cdef Py_ssize_t i, lane, rows = cells.shape[0]
    cdef uint64_t at, size = counter.shape[0]
    cdef int64_t inside, beyond = 0
    cdef int64_t lanes[LANES * (FEW + 1)]
    # Of a table that no cache holds, the cells of rows to come are fetched meanwhile.
    cdef Py_ssize_t fetched = rows - AHEAD if size > CACHED else 0
    if not size:
        raise IndexError("a table has no cells")
    with nogil:
        if size <= FEW:
            # Each cell has several counters in turn: an addition need not await the one before.
            memset(lanes, 0, sizeof(int64_t) * LANES * (size + 1))
            for i in range(rows):
                at = min(<uint64_t>cells[i], size)
                lanes[LANES * at + (i & (LANES - 1))] += 1
                beyond |= ~(cells[i] | -<int64_t>(at < size))
            for i in range(LANES * <Py_ssize_t>size):
                counter[i // LANES] += <Count>lanes[i]
        else:
            for i in range(rows):
                if i < fetched:
                    at = cells[i + AHEAD]
                    prefetch(&counter[at & -<uint64_t>(at < size)])
                # Which rows are outside cannot be foreseen: they add nothing to the first cell.
                inside = -<int64_t>(<uint64_t>cells[i] < size)
                counter[cells[i] & inside] -= <Count>inside
                beyond |= ~(cells[i] | inside)
    if beyond < 0:
        raise IndexError("a cell lies beyond the table")


def increment_pairs(
    Count[::1] counter, const int64_t[::1] high, int64_t size, const int64_t[::1] low
):
    cdef Py_ssize_t i
    cdef int64_t cell
    cdef uint64_t cells = counter.shape[0]
    cdef bint beyond = False
    if high.shape[0] != low.shape[0]:
        raise ValueError("each row must have both digits")
    with nogil:
        for i in range(high.shape[0]):
            cell = <int64_t>(<uint64_t>high[i] * <uint64_t>size + <uint64_t>low[i])
            if <uint64_t>cell < cells and (high[i] | low[i]) >= 0:
                counter[cell] += 1
            else:
                beyond = True
    if beyond:
        raise IndexError("a cell lies beyond the table")


def add_weights(int64_t[::1] counter, const int64_t[::1] cells, const int64_t[::1] weights):
    cdef Py_ssize_t i
    cdef uint64_t size = counter.shape[0]
    cdef int64_t inside, beyond = 0
    if cells.shape[0] != weights.shape[0]:
        raise ValueError("each row must have a weight")
    if not size:
        raise IndexError("a table has no cells")
    with nogil:
        for i in range(cells.shape[0]):
            inside = -<int64_t>(<uint64_t>cells[i] < size)
            counter[cells[i] & inside] += weights[i] & inside
            beyond |= ~(cells[i] | inside)
    if beyond < 0:
        raise IndexError("a cell lies beyond the table")


def add_weights_of_pairs(
    int64_t[::1] counter,
    const int64_t[::1] high,
    int64_t size,
    const int64_t[::1] low,
    const int64_t[::1] weights,
):
    cdef Py_ssize_t i
    cdef int64_t cell
    cdef uint64_t cells = counter.shape[0]
    cdef bint beyond = False
    if high.shape[0] != low.shape[0]:
        raise ValueError("each row must have both digits")
    if high.shape[0] != weights.shape[0]:
        raise ValueError("each row must have a weight")
    with nogil:
        for i in range(high.shape[0]):
            cell = <int64_t>(<uint64_t>high[i] * <uint64_t>size + <uint64_t>low[i])
            if <uint64_t>cell < cells and (high[i] | low[i]) >= 0:
                counter[cell] += weights[i]
            else:
                beyond = True
    if beyond:
        raise IndexError("a cell lies beyond the table")


def add_shares(
    int64_t[::1] counter,
    const int64_t[::1] cells,
    const int64_t[::1] codes,
    int64_t shares,
    int64_t size,
    weights,
):
    cdef Py_ssize_t i, at
    cdef Py_ssize_t rows = cells.shape[0], counted = 0
    cdef int64_t cell, code, upper, lower, missing, inside
    cdef int64_t most = counter.shape[0] // size
    cdef bint beyond = False, weighted = weights is not None
    cdef const int64_t[::1] factors = weights if weighted else codes
    # Of a table that no cache holds, the cells of rows to come are fetched meanwhile.
    cdef Py_ssize_t fetched = rows - AHEAD if counter.shape[0] > CACHED else 0
    if codes.shape[0] != rows or factors.shape[0] != rows:
        raise ValueError("each row must have a cell, a code and a weight")
    with nogil:
        for i in range(rows):
            if i < fetched and <uint64_t>cells[i + AHEAD] < <uint64_t>most:
                prefetch(&counter[cells[i + AHEAD] * size])
            cell, code = cells[i], codes[i]
            if cell < 0:
                continue
            if cell >= most or code > shares + size - 2:
                beyond |= code >= 0
                continue
            # Which rows have no value cannot be foreseen, so masks take the place of branches.
            inside = ~(code >> 63)
            code &= inside
            missing = (shares - code) >> 63
            upper = code & ~missing
            lower = (shares - upper) & inside
            if weighted:
                upper *= factors[i]
                lower *= factors[i]
            at = cell * size
            counter[at + (2 & missing)] += lower
            counter[at + 1] += upper
            counted -= inside
    if beyond:
        raise IndexError("a cell lies beyond the table")
    return counted


ctypedef fused Number:
    int8_t
    int16_t
    int32_t
    int64_t
    uint8_t
    uint16_t
    uint32_t
    float
    double


@cython.cdivision(True)
def encode_numbers(
    const Number[::1] values,
    valid,
    int64_t start,
    double first,
    double last,
    double unit,
    int64_t shares,
    int64_t null_code,
    int64_t[::1] codes,
):
    cdef Py_ssize_t i, rows = values.shape[0]
    cdef int64_t low = <int64_t>first, high = <int64_t>last, step = <int64_t>unit, above
    # Quotients of 32 bits are found in a fraction of the time of those of 64.
    cdef uint32_t narrow = <uint32_t>(2 * step)
    cdef bint exact = low == first and high == last and step == unit
    cdef bint fits = exact and 2 * (high - low) + step < <int64_t>1 << 32
    cdef bint masked = valid is not None
    cdef const uint8_t[::1] bits = valid if masked else memoryview(b"")
    cdef double number, near
    cdef int32_t code, most = <int32_t>shares
    cdef int64_t there
    if codes.shape[0] != rows or (masked and 8 * bits.shape[0] < start + rows) or start < 0:
        raise ValueError("each value must have a code, and a bit that says whether it is there")
    with nogil:
        if Number is float or Number is double:
            for i in range(rows):
                number = values[i]
                # Of a comparison with NaN the lower bound comes out.
                near = number if number > first else first
                near = ((near if near < last else last) - first) / unit + 0.5
                # Codes fit in 32 bits, to which processors convert several at once.
                code = <int32_t>near
                codes[i] = min(code, most) if number == number else null_code
        elif exact and step == 1:
            for i in range(rows):
                codes[i] = min(max(<int64_t>values[i], low), high) - low
        elif fits:
            for i in range(rows):
                above = min(max(<int64_t>values[i], low), high) - low
                codes[i] = <uint32_t>(2 * above + step) // narrow
        elif exact:
            for i in range(rows):
                above = min(max(<int64_t>values[i], low), high) - low
                codes[i] = (2 * above + step) // (2 * step)
        else:
            for i in range(rows):
                near = (min(max(<double>values[i], first), last) - first) / unit + 0.5
                codes[i] = min(<int64_t>near, shares)
        if masked:
            # Which values are there cannot be foreseen, so masks take the place of branches.
            for i in range(rows):
                there = -<int64_t>(bits[(start + i) >> 3] >> ((start + i) & 7) & 1)
                codes[i] = (codes[i] & there) | (null_code & ~there)


# SipHash-2-4 is a keyed pseudo-random function: without the key its outputs cannot be distinguished
# from random ones. Aumasson, Bernstein, "SipHash: a fast short-input PRF" (2012). The output of 128
# bits is that of the authors' reference code.

cdef inline uint64_t rotate(uint64_t word, int bits) noexcept nogil:
    return (word << bits) | (word >> (64 - bits))


cdef inline void mix(uint64_t *v, int rounds) noexcept nogil:
    cdef int i
    for i in range(rounds):
        v[0] += v[1]
        v[1] = rotate(v[1], 13) ^ v[0]
        v[0] = rotate(v[0], 32)
        v[2] += v[3]
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] += v[3]
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] += v[1]
        v[1] = rotate(v[1], 17) ^ v[2]
        v[2] = rotate(v[2], 32)


cdef inline void start_hash(uint64_t *v, uint64_t first, uint64_t second) noexcept nogil:
    v[0] = first ^ <uint64_t>0x736F6D6570736575
    v[1] = second ^ <uint64_t>0x646F72616E646F6D ^ 0xEE  # the variant of 128 bits
    v[2] = first ^ <uint64_t>0x6C7967656E657261
    v[3] = second ^ <uint64_t>0x7465646279746573


cdef inline void absorb(uint64_t *v, uint64_t word) noexcept nogil:
    v[3] ^= word
    mix(v, 2)
    v[0] ^= word


cdef inline uint64_t end_first_half(uint64_t *v) noexcept nogil:
    v[2] ^= 0xEE
    mix(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


cdef inline uint64_t end_second_half(uint64_t *v) noexcept nogil:
    v[1] ^= 0xDD
    mix(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


cdef void hash_message(
    const uint8_t *message, Py_ssize_t length, uint64_t first, uint64_t second, uint64_t *tag
) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef Py_ssize_t i, whole = length // 8
    start_hash(v, first, second)
    for i in range(whole):
        memcpy(&word, message + 8 * i, 8)
        absorb(v, from_little_endian(word))
    word = <uint64_t>length << 56
    for i in range(length - 8 * whole):
        word |= <uint64_t>message[8 * whole + i] << (8 * i)
    absorb(v, word)
    tag[0] = end_first_half(v)
    tag[1] = end_second_half(v)


def hash_messages(
    uint64_t first, uint64_t second, const uint8_t[:, ::1] messages, uint64_t[:, ::1] tags
):
    cdef Py_ssize_t i, rows = messages.shape[0], length = messages.shape[1]
    cdef const uint8_t *start = &messages[0, 0] if rows and length else NULL
    if tags.shape[0] != rows or tags.shape[1] != 2:
        raise ValueError("each message must have a tag of two words")
    with nogil:
        for i in range(rows):
            hash_message(start + i * length, length, first, second, &tags[i, 0])


def hash_stretches(
    uint64_t first,
    uint64_t second,
    const uint8_t[::1] content,
    const int64_t[::1] offsets,
    uint64_t[:, ::1] tags,
):
    cdef Py_ssize_t i, rows = tags.shape[0]
    cdef int64_t size = content.shape[0]
    cdef const uint8_t *start = &content[0] if size else NULL
    cdef bint beyond = False
    if offsets.shape[0] != rows + 1 or tags.shape[1] != 2:
        raise ValueError("each stretch must have an end and a tag of two words")
    with nogil:
        for i in range(rows):
            if not 0 <= offsets[i] <= offsets[i + 1] <= size:
                beyond = True
                break
            hash_message(
                start + offsets[i], offsets[i + 1] - offsets[i], first, second, &tags[i, 0]
            )
    if beyond:
        raise IndexError("a stretch lies beyond the content")


def hash_integers(uint64_t first, uint64_t second, const int64_t[::1] values, uint64_t[:, ::1] tags):
    cdef Py_ssize_t i, rows = values.shape[0]
    cdef uint64_t v[4]
    if tags.shape[0] != rows or tags.shape[1] != 2:
        raise ValueError("each value must have a tag of two words")
    with nogil:
        for i in range(rows):
            start_hash(v, first, second)
            absorb(v, <uint64_t>values[i])
            # The length, 9, and the ninth byte, which is the sign.
            absorb(v, (<uint64_t>9 << 56) | (0xFF if values[i] < 0 else 0))
            tags[i, 0] = end_first_half(v)
            tags[i, 1] = end_second_half(v)


cdef struct Ranked:
    uint64_t tag
    uint64_t half
    uint64_t priority
    int64_t row


cdef inline bint precedes(
    const Ranked *a, const Ranked *b, const uint64_t *words, Py_ssize_t width
) noexcept nogil:
    cdef Py_ssize_t w
    cdef uint64_t one, other
    if a.tag != b.tag:
        return a.tag < b.tag
    if a.priority != b.priority and a.half == b.half:
        return a.priority < b.priority
    if a.half != b.half:
        return a.half < b.half
    for w in range(width - 1, -1, -1):
        one, other = words[a.row * width + w], words[b.row * width + w]
        if one != other:
            return one < other
    return False


cdef void sink(
    Ranked *ranked, Py_ssize_t at, Py_ssize_t rows, const uint64_t *words, Py_ssize_t width
) noexcept nogil:
    """Restore a heap below one of its rows."""
    cdef Ranked one = ranked[at]
    cdef Py_ssize_t child = 2 * at + 1
    while child < rows:
        if child + 1 < rows and precedes(&ranked[child], &ranked[child + 1], words, width):
            child += 1
        if not precedes(&one, &ranked[child], words, width):
            break
        ranked[at] = ranked[child]
        at, child = child, 2 * child + 1
    ranked[at] = one


cdef void rank_rows(
    Ranked *ranked, Py_ssize_t rows, const uint64_t *words, Py_ssize_t width
) noexcept nogil:
    """Sort rows: few by insertion, many by a heap, which has no bad case."""
    cdef Py_ssize_t i, j
    cdef Ranked one
    if rows > 24:
        for i in range(rows // 2 - 1, -1, -1):
            sink(ranked, i, rows, words, width)
        for i in range(rows - 1, 0, -1):
            one = ranked[0]
            ranked[0] = ranked[i]
            ranked[i] = one
            sink(ranked, 0, i, words, width)
        return
    for i in range(1, rows):
        one = ranked[i]
        j = i
        while j > 0 and precedes(&one, &ranked[j - 1], words, width):
            ranked[j] = ranked[j - 1]
            j -= 1
        ranked[j] = one


def select_rows(
    uint64_t first,
    uint64_t second,
    const uint64_t[:, ::1] tags,
    const uint64_t[:, ::1] words,
    int64_t limit,
    int64_t[::1] selected,
):
    cdef Py_ssize_t rows = tags.shape[0], width = words.shape[1]
    cdef Py_ssize_t i, j, w, start, count, taken = 0, rank
    cdef int bits = 0, shift
    cdef uint64_t v[4]
    cdef Ranked *one
    if tags.shape[1] != 2 or words.shape[0] != rows or selected.shape[0] != rows:
        raise ValueError("each row must have a tag of two words, and room among those kept")
    if not rows:
        return 0
    cdef const uint64_t *content = &words[0, 0] if width else NULL
    while bits < 40 and (<int64_t>1 << bits) < rows:
        bits += 1
    shift = 63 - bits
    cdef Py_ssize_t groups = <Py_ssize_t>1 << bits
    # Persons are grouped by the first bits of the second half of their hashes: the rows of one
    # bucket share the first bits of the first half.
    cdef int64_t *ends = <int64_t *>PyMem_Malloc((groups + 1) * sizeof(int64_t))
    cdef Ranked *ranked = <Ranked *>PyMem_Malloc(rows * sizeof(Ranked))
    try:
        if ends == NULL or ranked == NULL:
            raise MemoryError
        with nogil:
            for i in range(groups + 1):
                ends[i] = 0
            for i in range(rows):
                ends[(tags[i, 1] >> 1 >> shift) + 1] += 1
            for i in range(groups):
                ends[i + 1] += ends[i]
            for i in range(rows):
                j = tags[i, 1] >> 1 >> shift
                one = &ranked[ends[j]]
                ends[j] += 1
                one.tag, one.half, one.row = tags[i, 0], tags[i, 1], i
            # Now each group ends where it says, and begins where the group before ends.
            start = 0
            for j in range(groups):
                count = ends[j] - start
                if count <= limit:
                    for i in range(start, start + count):
                        selected[taken] = ranked[i].row
                        taken += 1
                else:
                    for i in range(start, start + count):
                        one = &ranked[i]
                        start_hash(v, first, second)
                        absorb(v, one.tag)
                        absorb(v, one.half)
                        for w in range(width):
                            absorb(v, content[one.row * width + w])
                        absorb(v, <uint64_t>((16 + 8 * width) & 0xFF) << 56)
                        one.priority = end_first_half(v)
                    rank_rows(&ranked[start], count, content, width)
                    rank = 0
                    for i in range(start, start + count):
                        one = &ranked[i]
                        if i > start and (
                            one.tag != ranked[i - 1].tag or one.half != ranked[i - 1].half
                        ):
                            rank = 0
                        if rank < limit:
                            selected[taken] = one.row
                            taken += 1
                        rank += 1
                start += count
    finally:
        PyMem_Free(ends)
        PyMem_Free(ranked)
    return taken


def sort_records(
    const uint8_t[:, ::1] records,
    const uint16_t[::1] buckets,
    int64_t[::1] ends,
    uint8_t[:, ::1] ordered,
):
    cdef Py_ssize_t i, rows = records.shape[0], width = records.shape[1], count = ends.shape[0]
    cdef int64_t at
    cdef bint beyond = False
    if buckets.shape[0] != rows or ordered.shape[0] != rows or ordered.shape[1] != width:
        raise ValueError("each record must have a bucket and a place")
    if not rows or not width:
        return
    with nogil:
        for i in range(rows):
            if buckets[i] >= count or not 0 <= ends[buckets[i]] < rows:
                beyond = True
                break
            at = ends[buckets[i]]
            ends[buckets[i]] += 1
            memcpy(&ordered[at, 0], &records[i, 0], width)
    if beyond:
        raise IndexError("a bucket lies beyond the records")
