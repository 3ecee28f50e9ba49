"""Noisy answers in parts: one file per part, written once and read when needed.

A part is a NumPy file of integers in the narrowest type that holds them. The first writer of a part
fixes its content for good, so no answer is ever published with two draws of noise. The manifest
lists the digest of each part, and the manifest's digest identifies the answers.

A few strides describe which of all answers a part has.
"""

from __future__ import annotations

import io
import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fitplug.errors import InputError
from fitplug.files import Place, hash_content
from fitplug.numeric import IntArray


class Stride(NamedTuple):
    """Some of the strategy's answers. An answer's number is start + the sum of index times stride.

    Attributes:
        start: The number of the first answer.
        shape: The number of indices along each axis; the last axis runs fastest.
        strides: The distance between the numbers of neighbours along each axis.
    """

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of answers."""
        return math.prod(self.shape)

    @property
    def ends(self) -> tuple[int, int]:
        """The least number, and the largest plus one."""
        reach = [(n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)]
        least = sum(min(one, 0) for one in reach)
        return self.start + least, self.start + sum(max(one, 0) for one in reach) + 1

    @property
    def is_run(self) -> bool:
        """Whether the numbers follow one another."""
        step = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n > 1 and stride != step:
                return False
            step *= n
        return True

    def list_numbers(self) -> IntArray:
        """List the numbers of the answers in order, shape (size,)."""
        numbers = np.full((), self.start, dtype=np.int64)
        for n, step in zip(self.shape, self.strides, strict=True):
            numbers = np.add.outer(numbers, step * np.arange(n, dtype=np.int64))
        return np.asarray(numbers).ravel()


def describe_place(place: slice | IntArray) -> tuple[Stride, ...]:
    """Describe a part's answers by strides: only a few, where the numbers have a pattern.

    Args:
        place: What `PartedStrategy.place` returns: a range, or numbers in the part's order, (n,).
    """
    if isinstance(place, slice):
        assert place.step in (None, 1)
        return (Stride(place.start, (place.stop - place.start,), (1,)),)
    if not len(place):
        return ()
    # Merge numbers at equal distances into runs, then such runs at equal distances, and so on.
    strides = _list_progressions(np.asarray(place))
    while True:
        merged = _merge_strides(strides)
        if len(merged) == len(strides):
            return tuple(merged)
        strides = merged


def _list_progressions(numbers: IntArray) -> list[Stride]:
    """Split numbers (n,) into runs at equal distances."""
    steps = np.diff(numbers)
    # For each step, the end of its run of equal steps.
    changes = np.flatnonzero(np.diff(steps)) + 1
    ends = np.append(changes, len(steps))
    last = ends[np.searchsorted(changes, np.arange(len(steps)), side="right")].tolist()
    strides, at = [], 0
    while at < len(numbers):
        end = last[at] + 1 if at < len(steps) else at + 1
        step = int(steps[at]) if end > at + 1 else 1
        strides.append(Stride(int(numbers[at]), (end - at,), (step,)))
        at = end
    return strides


def _merge_strides(strides: list[Stride]) -> list[Stride]:
    """Merge neighbours that differ only in their starts, at equal distances."""
    merged, at = [], 0
    while at < len(strides):
        first, end, step = strides[at], at + 1, 0
        while end < len(strides) and strides[end][1:] == first[1:]:
            distance = strides[end].start - strides[end - 1].start
            if end > at + 1 and distance != step:
                break
            step, end = distance, end + 1
        if end == at + 1:
            merged.append(first)
        else:
            merged.append(Stride(first.start, (end - at, *first.shape), (step, *first.strides)))
        at = end
    return merged


ANSWER_PARTS = "answers"
"""The folder of the parts."""

_CACHE_BYTES = 2**26
"""The most bytes of parts in the cache."""

_OF_PROCESS = ("_cache", "_lock")
"""The attributes that are not pickled."""

_WIDTHS = tuple(np.dtype(f"<i{size}") for size in (1, 2, 4, 8))


@dataclass(frozen=True)
class AnswersPart:
    """One part of the noisy answers.

    Attributes:
        number: The number of the part, from 0.
        place: Which of the strategy's answers the part has, in the order of its file.
        bytes: The size of the file.
        digest: The SHA-256 of the file, in hex.
    """

    number: int
    place: tuple[Stride, ...]
    bytes: int
    digest: str

    @property
    def size(self) -> int:
        """The number of answers."""
        return sum(stride.size for stride in self.place)


class WrittenPart(NamedTuple):
    """A part that is durable.

    Attributes:
        bytes: The size of its file.
        digest: The SHA-256 of the file, in hex.
        is_mine: Whether the file holds the answers of this call. If not, another writer was first,
            and the file holds their draw.
    """

    bytes: int
    digest: str
    is_mine: bool


def name_part(number: int) -> str:
    """Return the file name of a part."""
    return f"part-{number:05}.npy"


def write_answers_part(folder: Place, number: int, noisy: IntArray) -> WrittenPart:
    """Write a part of the noisy answers, unless it was written before.

    Args:
        folder: The folder of the release, or its staging area.
        number: The number of the part.
        noisy: The noisy answers of the part, in its order, shape (n,).

    Returns:
        The part that is durable now.

    Raises:
        OSError: The file cannot be written.
        InputError: The place cannot refuse a second writer, or a file there is damaged.
    """
    parts = folder.join(ANSWER_PARTS)
    content = encode_part(noisy)
    if parts.create(name_part(number), content):
        return WrittenPart(len(content), hash_content(content), is_mine=True)
    existing = find_answers_part(folder, number, noisy.size)
    assert existing is not None
    return existing._replace(is_mine=False)


def find_answers_part(folder: Place, number: int, size: int) -> WrittenPart | None:
    """Find a part that was written before; None if there is none.

    Raises:
        InputError: The file is not a part with `size` answers.
        OSError: The file cannot be read.
    """
    try:
        content = folder.join(ANSWER_PARTS).read(name_part(number))
    except FileNotFoundError:
        return None
    _decode_part(content, f"{folder}/{ANSWER_PARTS}/{name_part(number)}", size)
    return WrittenPart(len(content), hash_content(content), is_mine=False)


def read_answers_part(folder: Place, part: AnswersPart) -> IntArray:
    """Read a part of the noisy answers, and check its digest.

    Returns:
        The answers in the part's order, int64, shape (n,).

    Raises:
        InputError: The file is missing, damaged or was edited.
        OSError: The file cannot be read.
    """
    name = f"{folder}/{ANSWER_PARTS}/{name_part(part.number)}"
    content = read_checked(folder.join(ANSWER_PARTS), name_part(part.number), part.digest)
    return _decode_part(content, name, part.size)


def read_checked(folder: Place, name: str, digest: str) -> bytes:
    """Read a file, and check its digest.

    Raises:
        InputError: The file is missing, damaged or was edited.
        OSError: The file cannot be read.
    """
    try:
        content = folder.read(name)
    except FileNotFoundError:
        raise InputError(
            f"{folder}/{name} is missing. A release needs all files of its folder."
        ) from None
    if hash_content(content) != digest:
        raise InputError(
            f"{folder}/{name} is damaged or was edited. Get the folder again from its publisher."
        )
    return content


class PartedAnswers:
    """The noisy answers of a plan, whose parts are read when needed.

    It behaves like an int64 array of shape (n,): slices and lists of numbers give arrays, and
    `numpy.asarray` reads all answers.

    Attributes:
        folder: The folder of the release.
        parts: The parts.
        size: The number of answers.
    """

    dtype = np.dtype(np.int64)
    ndim = 1

    def __init__(self, folder: Place, parts: Sequence[AnswersPart], size: int) -> None:
        self.parts = tuple(parts)
        self.size = size
        self.folder = folder
        self._cache: OrderedDict[int, IntArray] = OrderedDict()
        self._lock = threading.Lock()  # the tasks of a worker share one object

    @property
    def shape(self) -> tuple[int]:
        """The shape (n,)."""
        return (self.size,)

    def __len__(self) -> int:
        return self.size

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in _OF_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._cache, self._lock = OrderedDict(), threading.Lock()

    def __repr__(self) -> str:
        return f"PartedAnswers({self.size:,} in {len(self.parts):,} parts)"

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def __getitem__(self, chosen: Any) -> Any:
        if isinstance(chosen, slice) and chosen.step in (None, 1):
            return self._read_range(*chosen.indices(self.size)[:2])
        if isinstance(chosen, slice):
            chosen = np.arange(*chosen.indices(self.size), dtype=np.int64)
        numbers = np.asarray(chosen)
        if numbers.dtype.kind not in "iu" and numbers.size:
            raise IndexError("an index must be a slice, an integer or an array of integers")
        numbers = np.where(numbers < 0, numbers + self.size, numbers).astype(np.int64)
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < self.size:
            raise IndexError(f"an index is out of range: there are {self.size} answers")
        return self._read_numbers(numbers.ravel()).reshape(numbers.shape)[()]

    def read_part(self, number: int) -> IntArray:
        """Read a part, in its own order, and check its digest; the latest parts are cached.

        Raises:
            InputError: The file is missing, damaged or was edited.
            OSError: The file cannot be read.
        """
        with self._lock:
            answers = self._cache.get(number)
        if answers is None:
            answers = read_answers_part(self.folder, self.parts[number])
            answers.setflags(write=False)
        with self._lock:
            self._cache[number] = answers
            self._cache.move_to_end(number)
            while (
                len(self._cache) > 1 and sum(a.nbytes for a in self._cache.values()) > _CACHE_BYTES
            ):
                self._cache.popitem(last=False)
        return answers

    def _read_range(self, first: int, end: int) -> IntArray:
        """Read the answers with the numbers `first` to `end` - 1."""
        answers = np.zeros(max(end - first, 0), dtype=np.int64)
        for part in self.parts:
            at = 0
            for stride in part.place:
                least, most = stride.ends
                if stride.size and least < end and most > first:
                    values = self.read_part(part.number)[at : at + stride.size]
                    if stride.is_run:
                        overlap = slice(max(first - least, 0), end - least)
                        answers[max(least - first, 0) : max(most - first, 0)] = values[overlap]
                    else:
                        numbers = stride.list_numbers()
                        inside = (numbers >= first) & (numbers < end)
                        answers[numbers[inside] - first] = values[inside]
                at += stride.size
        return answers

    def _read_numbers(self, numbers: IntArray) -> IntArray:
        """Read the answers with these numbers (n,) from the parts that have them."""
        answers = np.zeros(len(numbers), dtype=np.int64)
        for part in self.parts:
            at = 0
            for stride in part.place:
                least, most = stride.ends
                near = np.flatnonzero((numbers >= least) & (numbers < most))
                if stride.size and len(near):
                    numbers_of_part = stride.list_numbers()
                    order = np.argsort(numbers_of_part, kind="stable")
                    place = np.minimum(
                        np.searchsorted(numbers_of_part[order], numbers[near]),
                        len(numbers_of_part) - 1,
                    )
                    place = order[place]
                    has = numbers_of_part[place] == numbers[near]
                    answers[near[has]] = self.read_part(part.number)[at + place[has]]
                at += stride.size
        return answers


def encode_part(noisy: IntArray) -> bytes:
    """Encode answers as a NumPy file of the narrowest type that holds them."""
    low, high = (int(noisy.min()), int(noisy.max())) if noisy.size else (0, 0)
    narrow = next(
        width
        for width in _WIDTHS
        if np.iinfo(width).min <= low and high <= np.iinfo(width).max
    )  # fmt: skip
    file = io.BytesIO()
    np.lib.format.write_array(
        file, np.ascontiguousarray(noisy, dtype=narrow), version=(1, 0), allow_pickle=False
    )
    return file.getvalue()


def _decode_part(content: bytes, name: str, size: int) -> IntArray:
    """Decode a part with `size` answers. Raises InputError if it is not one."""
    try:
        file = io.BytesIO(content)
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("the part has an unknown version of NumPy's format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if shape != (size,) or dtype not in _WIDTHS:
            raise ValueError("the part of the answers has another shape or type than expected")
        read = np.frombuffer(content, dtype=dtype, count=size, offset=file.tell())
        if file.tell() + read.nbytes != len(content):
            raise ValueError("the file has more data after the end of the array")
    except Exception:  # NumPy raises many kinds of errors on damage
        raise InputError(f"{name} is damaged. Get the folder again from its publisher.") from None
    return read.astype(np.int64)
