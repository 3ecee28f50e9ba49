"""Avro: the records of an Avro file, which is how Iceberg stores its manifests.

https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

Read: TypeAlias = Callable[["_Bytes"], Any]
"""Reads one value of a type."""

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_MOST_BITS = 70


class _Bytes:
    """Bytes that are read from the beginning to the end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.offset = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes. Raise ValueError if there are fewer."""
        taken = self._content[self.offset : self.offset + size]
        if size < 0 or len(taken) != size:
            raise ValueError("the Avro file ends early")
        self.offset += size
        return taken

    def take_long(self) -> int:
        """Return the next integer, which is written with 7 bits in a byte and in zigzag."""
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift >= _MOST_BITS:
                raise ValueError("no integer of Avro")

    @property
    def is_at_end(self) -> bool:
        """Whether all bytes are read."""
        return self.offset == len(self._content)


def read_avro(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the records of an Avro file.

    Raises:
        Exception: The file is damaged, or compressed in a way that is not known.
    """
    source = _Bytes(content)
    if source.take(4) != _MAGIC:
        raise ValueError("no Avro file")
    header = _read_map(source, lambda inner: inner.take(inner.take_long()))
    sync = source.take(_SYNC_BYTES)
    read = _make_reader(json.loads(header["avro.schema"]), {})
    decompress = _CODECS[header.get("avro.codec", b"null").decode()]
    while not source.is_at_end:
        records = source.take_long()
        block = _Bytes(decompress(source.take(source.take_long())))
        for _ in range(records):
            yield read(block)
        if not block.is_at_end or source.take(_SYNC_BYTES) != sync:
            raise ValueError("a block of the Avro file is damaged")


def _make_reader(schema: Any, known: dict[str, Read]) -> Read:
    """Return what reads a value of a schema; `known` are the named types so far."""
    if isinstance(schema, list):
        choices = [_make_reader(one, known) for one in schema]
        return lambda source: choices[_check_index(source.take_long())](source)
    if isinstance(schema, str):
        return _PRIMITIVES[schema] if schema in _PRIMITIVES else known[schema]
    kind = schema["type"]
    if kind == "record":
        return _make_record_reader(schema, known)
    if kind == "array":
        item = _make_reader(schema["items"], known)
        return lambda source: list(_read_items(source, item))
    if kind == "map":
        value = _make_reader(schema["values"], known)
        return lambda source: _read_map(source, value)
    if kind == "fixed":
        size = schema["size"]
        known[schema["name"]] = lambda source: source.take(size)
        return known[schema["name"]]
    if kind == "enum":
        symbols = schema["symbols"]
        known[schema["name"]] = lambda source: symbols[_check_index(source.take_long())]
        return known[schema["name"]]
    return _make_reader(kind, known)


def _make_record_reader(schema: Mapping[str, Any], known: dict[str, Read]) -> Read:
    fields: list[tuple[str, Read]] = []

    def read(source: _Bytes) -> dict[str, Any]:
        return {name: read_field(source) for name, read_field in fields}

    known[schema["name"]] = read
    fields += [(one["name"], _make_reader(one["type"], known)) for one in schema["fields"]]
    return read


def _read_items(source: _Bytes, item: Read) -> Iterator[Any]:
    """Yield the items of an array or a map, which come in blocks."""
    while count := source.take_long():
        if count < 0:  # followed by the bytes of the block
            source.take_long()
        for _ in range(abs(count)):
            yield item(source)


def _read_map(source: _Bytes, value: Read) -> dict[str, Any]:
    return dict(_read_items(source, lambda inner: (_read_text(inner), value(inner))))


def _read_text(source: _Bytes) -> str:
    return source.take(source.take_long()).decode()


def _check_index(index: int) -> int:
    """Return an index. Raise ValueError if it is negative, which Python would take from the end."""
    if index < 0:
        raise ValueError("no index of Avro")
    return index


_PRIMITIVES: dict[str, Read] = {
    "null": lambda source: None,
    "boolean": lambda source: source.take(1) != b"\0",
    "int": _Bytes.take_long,
    "long": _Bytes.take_long,
    "float": lambda source: struct.unpack("<f", source.take(4))[0],
    "double": lambda source: struct.unpack("<d", source.take(8))[0],
    "bytes": lambda source: source.take(source.take_long()),
    "string": _read_text,
}


def _inflate(block: bytes) -> bytes:
    return zlib.decompress(block, -zlib.MAX_WBITS)


def _decompress_zstandard(block: bytes) -> bytes:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
        content: bytes = stream.read()
        return content


def _decompress_snappy(block: bytes) -> bytes:
    """Return the content of a block of Snappy, which begins with its size."""
    import pyarrow as pa

    size = shift = 0
    for byte in block:
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    content: bytes = pa.decompress(block[:-4], size, codec="snappy", asbytes=True)
    if zlib.crc32(content) != int.from_bytes(block[-4:], "big"):
        raise ValueError("a block of the Avro file has another checksum")
    return content


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda block: block,
    "deflate": _inflate,
    "snappy": _decompress_snappy,
    "zstandard": _decompress_zstandard,
}
