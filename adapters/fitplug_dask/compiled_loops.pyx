# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: freethreading_compatible=True
"""The compiled loops of `fitplug_dask.loops`; `numpy_loops` says what each does.

They run without Python's lock, so that several threads count at once. No number that a file holds
is used as an index before it is compared with the length of the array.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

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

cdef struct Column:
    const uint8_t *values
    int width
    bint signed
    int64_t low
    const int64_t *terms
    uint64_t last
    bint strict


def locate(columns, int64_t shared, int64_t[::1] cells):
    cdef Py_ssize_t c, i, start = 0, rows = cells.shape[0], count = len(columns)
    cdef bint clipped = False
    cdef const uint8_t[::1] values
    cdef const int64_t[::1] terms
    if not rows:
        return
    cdef Column *held = <Column *>PyMem_Malloc(max(count, 1) * sizeof(Column))
    if held == NULL:
        raise MemoryError
    try:
        for c in range(count):
            numbers, held[c].low, terms, held[c].strict = columns[c][:4]
            kind = numbers.dtype
            wide = kind.kind == "u" and kind.itemsize == 8
            if kind.kind not in "iu" or wide or not kind.isnative:
                raise TypeError("values must be integers of up to 32 bits, or int64")
            if len(numbers) != rows or not terms.shape[0]:
                raise ValueError("there must be a term, and a value for each cell")
            values = numbers.view("u1")
            held[c].values, held[c].width = &values[0], kind.itemsize
            held[c].signed = kind.kind == "i"
            held[c].terms, held[c].last = &terms[0], terms.shape[0] - 1
        with nogil:
            while start < rows:
                for i in range(start, min(start + BLOCK, rows)):
                    cells[i] = shared
                for c in range(count):
                    clipped |= add_terms(&held[c], start, min(BLOCK, rows - start), &cells[start])
                start += BLOCK
    finally:
        PyMem_Free(held)
    if clipped:
        raise IndexError("an index points nowhere")


cdef bint add_terms(
    const Column *column, Py_ssize_t start, Py_ssize_t rows, int64_t *cells
) noexcept nogil:
    """Add the terms of one column; return whether a strict column has an index beyond them."""
    cdef const uint8_t *values = column.values + start * column.width
    cdef bint clipped
    if column.width == 1 and column.signed:
        clipped = gather(<const int8_t *>values, column, rows, cells)
    elif column.width == 1:
        clipped = gather(<const uint8_t *>values, column, rows, cells)
    elif column.width == 2 and column.signed:
        clipped = gather(<const int16_t *>values, column, rows, cells)
    elif column.width == 2:
        clipped = gather(<const uint16_t *>values, column, rows, cells)
    elif column.width == 4 and column.signed:
        clipped = gather(<const int32_t *>values, column, rows, cells)
    elif column.width == 4:
        clipped = gather(<const uint32_t *>values, column, rows, cells)
    else:
        clipped = gather(<const int64_t *>values, column, rows, cells)
    return clipped and column.strict


cdef bint gather(
    const Value *values, const Column *column, Py_ssize_t rows, int64_t *cells
) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t low = column.low
    cdef const int64_t *terms = column.terms
    cdef uint64_t at, last = column.last
    cdef bint clipped = False
    for i in range(rows):
        # Without a sign, numbers below `low` are larger than all that are above it.
        at = <uint64_t>(<int64_t>values[i]) - <uint64_t>low
        if at > last:
            clipped = True
            at = 0 if <int64_t>values[i] < low else last
        cells[i] += terms[at]
    return clipped


def increment(Count[::1] counter, const int64_t[::1] cells):
    cdef Py_ssize_t i
    cdef uint64_t size = counter.shape[0]
    cdef bint beyond = False
    with nogil:
        for i in range(cells.shape[0]):
            if <uint64_t>cells[i] < size:
                counter[cells[i]] += 1
            elif cells[i] >= 0:
                beyond = True
    if beyond:
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
    cdef bint beyond = False
    if cells.shape[0] != weights.shape[0]:
        raise ValueError("each row must have a weight")
    with nogil:
        for i in range(cells.shape[0]):
            if <uint64_t>cells[i] < size:
                counter[cells[i]] += weights[i]
            elif cells[i] >= 0:
                beyond = True
    if beyond:
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
