# Types of thrift.py, by which it is compiled. Without a C compiler it runs as it is.
cimport cython

cdef int _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _DEEPEST

@cython.locals(head=int, kind=int, byte=int, number=int, start=Py_ssize_t)
cpdef tuple read_struct(bytes data, Py_ssize_t at, object wanted)

@cython.locals(kind=int, size=Py_ssize_t, start=Py_ssize_t)
cdef tuple _read_structs(bytes data, Py_ssize_t at, object wanted)

@cython.locals(size=Py_ssize_t)
cpdef Py_ssize_t skip(bytes data, Py_ssize_t at, int kind, int depth=*) except -1

cdef Py_ssize_t _skip_binary(bytes data, Py_ssize_t at) except -1

cdef Py_ssize_t _skip_map(bytes data, Py_ssize_t at, int depth) except -1

cdef tuple _find_binary(bytes data, Py_ssize_t at)

@cython.locals(head=int, kind=int)
cdef Py_ssize_t _skip_struct(bytes data, Py_ssize_t at, int depth) except -1

@cython.locals(kind=int, i=int)
cdef Py_ssize_t _skip_values(
    bytes data, Py_ssize_t at, Py_ssize_t size, int first, int second, int depth, int each
) except -1

@cython.locals(head=int)
cdef tuple _read_list_head(bytes data, Py_ssize_t at)

cdef tuple _read_varint(bytes data, Py_ssize_t at)
