"""Thrift's compact protocol, as far as Parquet uses it: what begins at a place of some bytes, and
where the next begins. https://github.com/apache/thrift/blob/master/doc/specs

Reading takes time and memory in proportion to the bytes, whatever they say. Beyond the last byte
there is an IndexError; bytes that are no Thrift raise ValueError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
"""Kinds of values."""

ThriftFields: TypeAlias = dict[int, Any]
"""A struct: values by the numbers of its fields."""

WantedFields: TypeAlias = Mapping[int, Any]
"""Of which fields that are structs, or lists of structs, the content is read, and of which fields
of theirs; None leaves a struct as its bytes. Integers of 16 bits and more, truth values and
binaries are read always; all else is passed over.
"""

_DEEPEST = 64


def read_struct(data: bytes, at: int, wanted: WantedFields) -> tuple[ThriftFields, int]:
    """The struct that begins there."""
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
            if byte < 128:  # most are short
                fields[number] = byte >> 1 ^ -(byte & 1)
                at += 1
            else:
                fields[number], at = read_integer(data, at)
        elif kind == BINARY:
            length, at = _varint(data, at)
            fields[number] = data[at : at + length]
            at += length
        elif kind == STRUCT and number in wanted:
            of, start = wanted[number], at
            if of is None:
                at = skip(data, at, kind)
                fields[number] = data[start:at]
            else:
                fields[number], at = read_struct(data, at, of)
        elif kind == LIST and number in wanted:
            fields[number], at = _read_structs(data, at, wanted[number])
        elif kind <= FALSE:
            fields[number] = kind == TRUE
        else:
            at = skip(data, at, kind)
    return fields, at + 1


def _read_structs(data: bytes, at: int, wanted: WantedFields) -> tuple[list[ThriftFields], int]:
    kind, size, at = _list_head(data, at)
    if kind != STRUCT and size:
        raise ValueError("no list of structs")
    found = []
    for _ in range(size):
        fields, at = read_struct(data, at, wanted)
        found.append(fields)
    return found, at


def skip(data: bytes, at: int, kind: int, deep: int = 0) -> int:
    """The place behind a value."""
    if BYTE < kind < DOUBLE:
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == BINARY:
        length, at = _varint(data, at)
        return at + length
    if deep > _DEEPEST:
        raise ValueError("too deep")
    if kind == STRUCT:
        return _skip_struct(data, at, deep)
    if kind in (LIST, SET):
        kind, size, at = _list_head(data, at)
        return _skip_values(data, at, size, (kind,), deep)
    if kind == MAP:
        size, at = _varint(data, at)
        if not size:
            return at
        return _skip_values(data, at + 1, size, (data[at] >> 4, data[at] & 15), deep)
    if kind == DOUBLE:
        return at + 8
    if kind == BYTE:
        return at + 1
    raise ValueError("no kind of value")


def _skip_struct(data: bytes, at: int, deep: int) -> int:
    while head := data[at]:
        at += 1
        kind = head & 15
        if head < 16:
            _, at = _varint(data, at)
        if BYTE < kind < DOUBLE:  # most are
            while data[at] > 127:
                at += 1
            at += 1
        elif kind > FALSE:
            at = skip(data, at, kind, deep + 1)
    return at + 1


def _skip_values(data: bytes, at: int, size: int, kinds: tuple[int, ...], deep: int) -> int:
    # Each takes a byte at least, so that a false size ends at the end of the data.
    for _ in range(size):
        for kind in kinds:
            at = at + 1 if kind <= FALSE else skip(data, at, kind, deep + 1)
            if at > len(data):
                raise IndexError
    return at


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Kind and number of the elements, and where they begin."""
    head = data[at]
    if head < 240:
        return head & 15, head >> 4, at + 1
    size, at = _varint(data, at + 1)
    return head & 15, size, at


def read_integer(data: bytes, at: int) -> tuple[int, int]:
    """The integer that begins there: of 64 bits."""
    number, at = _varint(data, at)
    return number >> 1 ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    if number < 128:  # most are short
        return number, at + 1
    number = 0
    for shift in range(0, 64, 7):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError("no integer of 64 bits")


# Writing: each gives the bytes of a value.


def struct(fields: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Of fields in the order of their numbers: number, kind, and the bytes of the value."""
    last, parts = 0, []
    for number, kind, value in fields:
        parts += [bytes(((number - last) << 4 | kind,)), value]
        last = number
    return b"".join(parts) + b"\0"


def values(kind: int, held: list[bytes]) -> bytes:
    """Of a list."""
    size = len(held)
    head = bytes((size << 4 | kind,)) if size < 15 else bytes((240 | kind,)) + _varint_of(size)
    return head + b"".join(held)


def integer(number: int) -> bytes:
    return _varint_of(number << 1 ^ number >> 63)


def binary(text: bytes) -> bytes:
    return _varint_of(len(text)) + text


def _varint_of(number: int) -> bytes:
    if number < 128:
        return bytes((number,))
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)
