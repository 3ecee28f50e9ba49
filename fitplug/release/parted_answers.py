"""The noisy answers of a release in parts, each read when it is needed, and their manifest."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.errors import InputError
from fitplug.files import Place, hash_content
from fitplug.ledger import Entry
from fitplug.numeric import IntArray
from fitplug.plan import Plan
from fitplug.release.answer_parts import ANSWER_PARTS, AnswersPart, Stride, read_answers_part
from fitplug.release.answers_file import describe_fields, parse_fields, read_entry
from fitplug.release.file_names import PLAN
from fitplug.release.manifest_header import read_manifest_header
from fitplug.release.noisy_answers import NoisyAnswers

MANIFEST = "manifest.json"

_KIND, _FORMAT = "answers of fitplug in parts", 1
_KEPT_BYTES = 2**26
"""The most bytes of parts that are kept for the next reading."""


_OF_PROCESS = ("_kept", "_lock")
"""The attributes that do not travel to another process."""


class PartedAnswers:
    """The noisy answers of a plan, of which parts are read when they are needed.

    It stands for an array of int64 of shape (n,): slices and lists of numbers are read as arrays,
    and `numpy.asarray` reads all of it.

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
        self._kept: OrderedDict[int, IntArray] = OrderedDict()
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
        self._kept, self._lock = OrderedDict(), threading.Lock()

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
            raise IndexError("answers are read by slices, numbers or arrays of numbers")
        numbers = np.where(numbers < 0, numbers + self.size, numbers).astype(np.int64)
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < self.size:
            raise IndexError(f"there are {self.size} answers")
        return self._read_numbers(numbers.ravel()).reshape(numbers.shape)[()]

    def read_part(self, number: int) -> IntArray:
        """Read a part, in its own order, and check its digest; the latest parts are kept.

        Raises:
            InputError: The file is missing, damaged or was edited.
            OSError: The file cannot be read.
        """
        with self._lock:
            found = self._kept.get(number)
        if found is None:
            found = read_answers_part(self.folder, self.parts[number])
            found.setflags(write=False)
        with self._lock:
            self._kept[number] = found
            self._kept.move_to_end(number)
            while len(self._kept) > 1 and sum(a.nbytes for a in self._kept.values()) > _KEPT_BYTES:
                self._kept.popitem(last=False)
        return found

    def _read_range(self, first: int, end: int) -> IntArray:
        """Read the answers of the numbers from `first` to before `end`."""
        found = np.zeros(max(end - first, 0), dtype=np.int64)
        for part in self.parts:
            at = 0
            for stride in part.place:
                least, most = stride.ends
                if stride.size and least < end and most > first:
                    values = self.read_part(part.number)[at : at + stride.size]
                    if stride.is_run:
                        kept = slice(max(first - least, 0), end - least)
                        found[max(least - first, 0) : max(most - first, 0)] = values[kept]
                    else:
                        numbers = stride.list_numbers()
                        own = (numbers >= first) & (numbers < end)
                        found[numbers[own] - first] = values[own]
                at += stride.size
        return found

    def _read_numbers(self, numbers: IntArray) -> IntArray:
        """Read the answers of some numbers, shape (n,), from the parts that have them."""
        found = np.zeros(len(numbers), dtype=np.int64)
        for part in self.parts:
            at = 0
            for stride in part.place:
                least, most = stride.ends
                near = np.flatnonzero((numbers >= least) & (numbers < most))
                if stride.size and len(near):
                    own = stride.list_numbers()
                    order = np.argsort(own, kind="stable")
                    place = np.minimum(np.searchsorted(own[order], numbers[near]), len(own) - 1)
                    place = order[place]
                    has = own[place] == numbers[near]
                    found[near[has]] = self.read_part(part.number)[at + place[has]]
                at += stride.size
        return found


def write_manifest(
    folder: Place, release: NoisyAnswers, parts: Sequence[AnswersPart]
) -> tuple[PartedAnswers, str]:
    """Write the manifest of all parts, unless it was written before.

    Args:
        folder: The folder of the release, or its staging area, with all parts.
        release: The release; its answers are not used.
        parts: All parts in order.

    Returns:
        The answers, and the digest of the manifest that is durable, which is that of the answers.

    Raises:
        InputError: The parts do not have each answer of the plan once, or a manifest of another
            release is there.
        OSError: The manifest cannot be written.
    """
    size = release.plan.strategy.released_size
    _check_places(parts, size)
    described = [
        {
            "place": [list(stride) for stride in part.place],
            "bytes": part.bytes,
            "digest": part.digest,
        }
        for part in parts
    ]
    header = {"kind": _KIND, "format": _FORMAT} | describe_fields(release) | {"parts": described}
    content = json.dumps(header, sort_keys=True, ensure_ascii=True).encode()
    own = folder.join(ANSWER_PARTS)
    if own.create(MANIFEST, content):
        return PartedAnswers(folder, parts, size), hash_content(content)
    fields, digest = read_manifest(folder, release.plan)
    found: PartedAnswers = fields["answers"]
    if [part.digest for part in found.parts] != [part.digest for part in parts]:
        raise InputError(f"{own}/{MANIFEST} is of other answers; name a folder that is new")
    return found, digest


def read_manifest(folder: Place, plan: Plan) -> tuple[dict[str, Any], str]:
    """Read the manifest of a release's answers.

    Returns:
        The fields of the release by the names of `Release`'s attributes, with answers that are read
        when they are needed; and the digest of the manifest.

    Raises:
        InputError: The manifest is missing, damaged, or of another plan.
        OSError: The manifest cannot be read.
    """
    name = f"{folder}/{ANSWER_PARTS}/{MANIFEST}"
    try:
        content = folder.join(ANSWER_PARTS).read(MANIFEST)
    except FileNotFoundError:
        raise InputError(f"{name} is missing; a release is read from its whole folder") from None
    header = read_manifest_header(name, content, _KIND, _FORMAT)
    if header.get("plan_digest") != plan.digest:
        raise InputError(f"{name} is of another plan than {PLAN}; use the files of one folder")
    try:
        parts = [_parse_part(k, one) for k, one in enumerate(header["parts"])]
        _check_places(parts, plan.strategy.released_size)
        answers = PartedAnswers(folder, parts, plan.strategy.released_size)
        fields = parse_fields(plan, header) | {"answers": answers}
    except Exception:  # entries that are missing or of another type raise many kinds of errors
        raise InputError(
            f"{name}: the answers and what is said of them do not agree; get the folder again "
            "from whoever released it"
        ) from None
    return fields, hash_content(content)


def read_manifest_charge(folder: Place) -> Entry | None:
    """Read the charge that a manifest names; None if it names none, or is missing or damaged."""
    try:
        content = folder.join(ANSWER_PARTS).read(MANIFEST)
        return read_entry(read_manifest_header(str(folder), content, _KIND, _FORMAT)["entry"])
    except Exception:  # entries that are missing or of another type raise many kinds of errors
        return None


def _parse_part(number: int, described: Any) -> AnswersPart:
    """Make a part of what a manifest says of it."""
    place = tuple(
        Stride(int(start), tuple(map(int, shape)), tuple(map(int, strides)))
        for start, shape, strides in described["place"]
    )
    return AnswersPart(number, place, int(described["bytes"]), str(described["digest"]))


def _check_places(parts: Sequence[AnswersPart], size: int) -> None:
    """Check that parts may have each of n answers once: their number, and the range of each.

    Raises:
        InputError: They have not.
    """
    strides = [stride for part in parts for stride in part.place]
    fits = sum(part.size for part in parts) == size
    fits = fits and all(len(one.shape) == len(one.strides) for one in strides)
    for one in strides:
        first, end = one.ends
        fits = (
            fits and min(one.shape, default=0) >= 0 and (not one.size or 0 <= first < end <= size)
        )
    if not fits:
        raise InputError(f"the parts do not have each of {size} answers once")
