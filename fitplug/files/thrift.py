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

ThriftFields: TypeAlias = dict[int, Any]
"""A struct: its values by the numbers of their fields."""

WantedFields: TypeAlias = Mapping[int, Any]
"""The fields whose structs, or lists of structs, are read: by number, the same for the structs
inside, or None for structs that are left as their bytes. Integers of 16 bits and more, truth values
and binaries are always read, and all other values are skipped.
"""

_DEEPEST = 64


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
            number, at = read_integer(data, at)
        if BYTE < kind < DOUBLE:
            byte = data[at]
            if byte < 128:  # the usual case, kept fast
                fields[number] = byte >> 1 ^ -(byte & 1)
                at += 1
            else:
                fields[number], at = read_integer(data, at)
        elif kind == BINARY:
            start, at = _find_binary(data, at)
            fields[number] = data[start:at]
        elif kind == STRUCT and number in wanted:
            inner, start = wanted[number], at
            if inner is None:
                at = skip(data, at, kind)
                fields[number] = data[start:at]
            else:
                fields[number], at = read_struct(data, at, inner)
        elif kind == LIST and number in wanted:
            fields[number], at = _read_structs(data, at, wanted[number])
        elif kind <= FALSE:
            fields[number] = kind == TRUE
        else:
            at = skip(data, at, kind)
    return fields, at + 1


def _read_structs(data: bytes, at: int, wanted: WantedFields | None) -> tuple[list[Any], int]:
    """Read a list of structs, or leave each as its bytes."""
    kind, size, at = _read_list_head(data, at)
    if kind != STRUCT and size:
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
    if BYTE < kind < DOUBLE:
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == BINARY:
        _, at = _find_binary(data, at)
        return at
    if depth > _DEEPEST:
        raise ValueError("too deep")
    if kind == STRUCT:
        return _skip_struct(data, at, depth)
    if kind in (LIST, SET):
        kind, size, at = _read_list_head(data, at)
        return _skip_values(data, at, size, (kind,), depth)
    if kind == MAP:
        size, at = _read_varint(data, at)
        if not size:
            return at
        return _skip_values(data, at + 1, size, (data[at] >> 4, data[at] & 15), depth)
    if kind == DOUBLE:
        return at + 8
    if kind == BYTE:
        return at + 1
    raise ValueError("no kind of value")


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
        if BYTE < kind < DOUBLE:  # the usual case, kept fast
            while data[at] > 127:
                at += 1
            at += 1
        elif kind > FALSE:
            at = skip(data, at, kind, depth + 1)
    return at + 1


def _skip_values(data: bytes, at: int, size: int, kinds: tuple[int, ...], depth: int) -> int:
    """Return the position behind so many elements, each of one value of each kind."""
    # Each value takes at least a byte, so that a false size ends at the end of the data.
    for _ in range(size):
        for kind in kinds:
            at = at + 1 if kind <= FALSE else skip(data, at, kind, depth + 1)
            if at > len(data):
                raise IndexError
    return at


def _read_list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Read the kind and the number of a list's elements, and return where they begin."""
    head = data[at]
    if head < 240:
        return head & 15, head >> 4, at + 1
    size, at = _read_varint(data, at + 1)
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
