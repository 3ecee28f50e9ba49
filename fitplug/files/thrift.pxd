# Types of thrift.py, by which it is compiled. Without a C compiler it runs as it is.
cimport cython

@cython.locals(head=cython.int, kind=cython.int, byte=cython.int, start=cython.Py_ssize_t)
cpdef tuple read_struct(bytes data, Py_ssize_t at, object wanted)

@cython.locals(kind=cython.int, start=cython.Py_ssize_t)
cdef tuple _read_structs(bytes data, Py_ssize_t at, object wanted)

cpdef Py_ssize_t skip(bytes data, Py_ssize_t at, int kind, int depth=*) except -1

cdef tuple _find_binary(bytes data, Py_ssize_t at)

@cython.locals(head=cython.int, kind=cython.int)
cdef Py_ssize_t _skip_struct(bytes data, Py_ssize_t at, int depth) except -1

@cython.locals(kind=cython.int)
cdef Py_ssize_t _skip_values(bytes data, Py_ssize_t at, object size, tuple kinds, int depth) except -1

@cython.locals(head=cython.int)
cdef tuple _read_list_head(bytes data, Py_ssize_t at)

cdef tuple _read_varint(bytes data, Py_ssize_t at)
