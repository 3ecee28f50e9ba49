"""Thrift's compact protocol, as far as Parquet uses it.

https://github.com/apache/thrift/blob/master/doc/specs

Where fitplug was installed with a C compiler, this module is compiled, by the types in thrift.pxd.

A function that reads takes bytes and the position where a value begins, and returns the value and
the position behind it. Its time and memory are in proportion to the number of bytes, also for
damaged ones. A value that does not end raises IndexError, and bytes that are no Thrift ValueError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
"""The kinds of values."""

# The same numbers, which are no Python objects where this module is compiled.
_FALSE, _BYTE, _DOUBLE, _BINARY, _LIST = FALSE, BYTE, DOUBLE, BINARY, LIST
_SET, _MAP, _STRUCT = SET, MAP, STRUCT

ThriftFields: TypeAlias = dict[int, Any]
"""A struct: its values by the numbers of their fields."""

WantedFields: TypeAlias = Mapping[int, Any]
"""The fields whose structs, or lists of structs, are read: by number, the same for the structs
inside, or None for structs that are left as their bytes. Integers of 16 bits and more, truth values
and binaries are always read, and all other values are skipped.
"""

_DEEPEST = 64
_MOST_FIELDS = 2**15


def read_struct(data: bytes, at: int, wanted: WantedFields) -> tuple[ThriftFields, int]:
    """Read the struct that begins at a position.

    Args:
        data: The bytes.
        at: Where the struct begins.
        wanted: The fields whose structs are read.

    Returns:
        The struct, and the position behind it.

    Raises:
        ValueError: The bytes are no Thrift.
        IndexError: The struct does not end.
    """
    fields: ThriftFields = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head > 15:
            number += head >> 4
        else:
            told, at = read_integer(data, at)
            if not 0 <= told < _MOST_FIELDS:
                raise ValueError("no number of a field")
            number = told
        if _BYTE < kind < _DOUBLE:
            byte = data[at]
            if byte < 128:  # the usual case, kept fast
                fields[number] = byte >> 1 ^ -(byte & 1)
                at += 1
            else:
                fields[number], at = read_integer(data, at)
        elif kind == _BINARY:
            start, at = _find_binary(data, at)
            fields[number] = data[start:at]
        elif kind == _STRUCT and number in wanted:
            inner, start = wanted[number], at
            if inner is None:
                at = skip(data, at, kind)
                fields[number] = data[start:at]
            else:
                fields[number], at = read_struct(data, at, inner)
        elif kind == _LIST and number in wanted:
            fields[number], at = _read_structs(data, at, wanted[number])
        elif kind <= _FALSE:
            fields[number] = kind == TRUE
        else:
            at = skip(data, at, kind)
    return fields, at + 1


def _read_structs(data: bytes, at: int, wanted: WantedFields | None) -> tuple[list[Any], int]:
    """Read a list of structs, or leave each as its bytes."""
    kind, size, at = _read_list_head(data, at)
    if kind != _STRUCT and size:
        raise ValueError("no list of structs")
    found: list[Any] = []
    if wanted is None:
        for _ in range(size):
            start, at = at, _skip_struct(data, at, 0)
            found.append(data[start:at])
        return found, at
    for _ in range(size):
        fields, at = read_struct(data, at, wanted)
        found.append(fields)
    return found, at


def skip(data: bytes, at: int, kind: int, depth: int = 0) -> int:
    """Return the position behind a value of a kind that begins at a position.

    Args:
        data: The bytes.
        at: Where the value begins.
        kind: Its kind.
        depth: In how many other values it lies.

    Raises:
        ValueError: The bytes are no Thrift.
        IndexError: The value does not end.
    """
    if _BYTE < kind < _DOUBLE:
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == _BINARY:
        return _skip_binary(data, at)
    if depth > _DEEPEST:
        raise ValueError("too deep")
    if kind == _STRUCT:
        return _skip_struct(data, at, depth)
    if kind in (_LIST, _SET):
        kind, size, at = _read_list_head(data, at)
        return _skip_values(data, at, size, kind, kind, depth, 1)
    if kind == _MAP:
        return _skip_map(data, at, depth)
    if kind == _DOUBLE:
        return at + 8
    if kind == _BYTE:
        return at + 1
    raise ValueError("no kind of value")


def _skip_binary(data: bytes, at: int) -> int:
    """Return the position behind a binary."""
    if data[at] > 127:
        _, at = _find_binary(data, at)
        return at
    at += data[at] + 1  # the usual case, kept fast
    if at > len(data):
        raise IndexError
    return at


def _skip_map(data: bytes, at: int, depth: int) -> int:
    """Return the position behind a map."""
    size, at = _read_varint(data, at)
    if size > len(data):  # each element takes at least a byte
        raise IndexError
    if not size:
        return at
    return _skip_values(data, at + 1, size, data[at] >> 4, data[at] & 15, depth, 2)


def _find_binary(data: bytes, at: int) -> tuple[int, int]:
    """Return where the bytes of a binary begin, and the position behind it."""
    length, at = _read_varint(data, at)
    if length > len(data) - at:
        raise IndexError
    return at, at + length


def _skip_struct(data: bytes, at: int, depth: int) -> int:
    """Return the position behind a struct."""
    while head := data[at]:
        at += 1
        kind = head & 15
        if head < 16:
            _, at = _read_varint(data, at)
        if _BYTE < kind < _DOUBLE:  # the usual case, kept fast
            while data[at] > 127:
                at += 1
            at += 1
        elif kind > _FALSE:
            at = skip(data, at, kind, depth + 1)
    return at + 1


def _skip_values(
    data: bytes, at: int, size: int, first: int, second: int, depth: int, each: int
) -> int:
    """Return the position behind so many elements, each of one value, or of two of two kinds."""
    # Each value takes at least a byte, so that a false size ends at the end of the data.
    for _ in range(size):
        for i in range(each):
            kind = second if i else first
            at = at + 1 if kind <= _FALSE else skip(data, at, kind, depth + 1)
            if at > len(data):
                raise IndexError
    return at


def _read_list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Read the kind and the number of a list's elements, and return where they begin."""
    head = data[at]
    if head < 240:
        return head & 15, head >> 4, at + 1
    size, at = _read_varint(data, at + 1)
    if size > len(data):  # each element takes at least a byte
        raise IndexError
    return head & 15, size, at


def read_integer(data: bytes, at: int) -> tuple[int, int]:
    """Read the integer of at most 64 bits that begins at a position."""
    number, at = _read_varint(data, at)
    return number >> 1 ^ -(number & 1), at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned integer: seven bits a byte, the lowest first."""
    number = data[at]
    if number < 128:  # the usual case, kept fast
        return number, at + 1
    number = 0
    for shift in range(0, 64, 7):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError("no integer of 64 bits")


def encode_struct(fields: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Encode a struct.

    Args:
        fields: The number, the kind and the encoded value of each field, in the order of their
            numbers, which differ by at most 15.
    """
    last, encoded = 0, []
    for number, kind, value in fields:
        encoded += [bytes(((number - last) << 4 | kind,)), value]
        last = number
    return b"".join(encoded) + b"\0"


def encode_list(kind: int, elements: list[bytes]) -> bytes:
    """Encode a list of encoded elements of one kind."""
    size = len(elements)
    head = bytes((size << 4 | kind,)) if size < 15 else bytes((240 | kind,)) + _encode_varint(size)
    return head + b"".join(elements)


def encode_integer(number: int) -> bytes:
    """Encode an integer of at most 64 bits."""
    return _encode_varint(number << 1 ^ number >> 63)


def encode_binary(text: bytes) -> bytes:
    """Encode bytes, with their number in front."""
    return _encode_varint(len(text)) + text


def _encode_varint(number: int) -> bytes:
    """Encode an integer >= 0: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
