"""The manifest of a release's noisy answers: what the release is, and the digest of each part.

The manifest's own digest is the digest of the answers, which a ledger records. The answers of one
period of a series are one part of the plan's answers, with a manifest that names the period.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy

from fitplug.errors import InputError, PlanError
from fitplug.families import PART, date_answers
from fitplug.files import Header, LocalPlace, Place, hash_content, sync
from fitplug.ledger import Entry, decode_fraction, encode_fraction
from fitplug.numeric import IntArray
from fitplug.plan import Plan
from fitplug.privacy import DiscreteNoise
from fitplug.releases.answer_parts import (
    ANSWER_PARTS,
    AnswersPart,
    PartedAnswers,
    Stride,
    describe_place,
    encode_part,
    write_answers_part,
)
from fitplug.releases.noisy_answers import LIMITS, NoisyAnswers
from fitplug.workload import Workload, read_bound_unit

PLAN, MANIFEST = "plan.npz", "manifest.json"

_KIND, _FORMAT = "answers of fitplug", 1
_RESERVED = ("release", "plan", "answers", "review")


@dataclass(frozen=True)
class Period:
    """A period of a series, whose answers are one part of those of the plan.

    Attributes:
        series: The digest of the series, which identifies it.
        attribute: The attribute whose cells are the periods.
        index: The index of the period.
    """

    series: str
    attribute: str
    index: int

    def place_answers(self, plan: Plan) -> tuple[Stride, ...]:
        """Return which of the plan's answers are drawn in this period."""
        dates = date_answers(plan.strategy, self.attribute)
        return describe_place(np.flatnonzero(dates == self.index))


def name_files(workload: Workload) -> Mapping[str, str]:
    """Choose a file name, without its ending, for each group: its own name in plain letters."""
    names: dict[str, str] = {}
    taken = set(_RESERVED)
    for group in workload.names:
        base = re.sub(r"[^A-Za-z0-9]+", "_", group).strip("_").lower()[:80] or "group"
        name, number = base, 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        names[group] = name
        taken.add(name)
    return names


def list_core_versions() -> dict[str, str]:
    """List the versions of Python and of the libraries that estimates are computed with."""
    from fitplug import __version__  # imported here, as the package imports this module

    return {
        "python": platform.python_version(),
        "fitplug": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def read_manifest_header(name: str, content: bytes, kind: str, version: int) -> dict[str, Any]:
    """Decode a manifest, and check its kind and its format.

    Args:
        name: The file, for messages.
        content: The content of the file.
        kind: The kind that it must have.
        version: The format that it must have.

    Raises:
        InputError: It is damaged, or of another kind or format.
    """
    try:
        header = json.loads(content)
        actual_kind, actual_version = header["kind"], header["format"]
    except Exception:  # JSON and types each raise their own kinds on damage
        raise InputError(f"{name} is damaged. Get the folder again from its publisher.") from None
    if (actual_kind, actual_version) != (kind, version):
        raise InputError(
            f"{name} must be {kind!r} in format {version}, not {actual_kind!r} in format "
            f"{actual_version!r}. Use the version of fitplug that wrote this file."
        )
    assert isinstance(header, dict)
    return header


def write_answers(
    folder: Place, release: NoisyAnswers, most: int = PART
) -> tuple[PartedAnswers, str]:
    """Write noisy answers into a folder that has none: their parts, and the manifest.

    Args:
        folder: The folder.
        release: The noisy answers.
        most: The largest number of answers of a part.

    Returns:
        The answers, and their digest.

    Raises:
        InputError: The folder has answers.
        OSError: The folder cannot be written.
    """
    return write_manifest(folder, release, write_parts(folder, release, most))


def write_parts(folder: Place, release: NoisyAnswers, most: int = PART) -> list[AnswersPart]:
    """Write the parts of noisy answers; see `write_answers`, which then writes their manifest."""
    parts = []
    for part, values in _cut_answers(release, most):
        if not write_answers_part(folder, part.number, values).is_mine:
            raise InputError(f"{folder} already exists. Name a folder that is new or empty.")
        parts.append(part)
    return parts


def _cut_answers(release: NoisyAnswers, most: int) -> Iterator[tuple[AnswersPart, IntArray]]:
    """Cut noisy answers into parts of neighbours."""
    for number, start in enumerate(range(0, release.plan.strategy.released_size, most)):
        values = np.asarray(release.answers[start : start + most])
        content = encode_part(values)
        place = (Stride(start, (len(values),), (1,)),)
        yield AnswersPart(number, place, len(content), hash_content(content)), values


def _encode_manifest(
    release: NoisyAnswers, parts: Sequence[AnswersPart], period: Period | None = None
) -> bytes:
    """Encode the manifest of parts. The answers of the release are not used."""
    described = [
        {
            "place": [list(stride) for stride in part.place],
            "bytes": part.bytes,
            "digest": part.digest,
        }
        for part in parts
    ]
    header = {"kind": _KIND, "format": _FORMAT} | _describe_fields(release) | {"parts": described}
    if period is not None:
        header["period"] = vars(period)
    return json.dumps(header, sort_keys=True, ensure_ascii=True).encode()


def write_manifest(
    folder: Place,
    release: NoisyAnswers,
    parts: Sequence[AnswersPart],
    period: Period | None = None,
) -> tuple[PartedAnswers, str]:
    """Write the manifest of all parts, unless it was written before.

    Args:
        folder: The folder of the release, or its staging area, with all parts.
        release: The release; its answers are not used.
        parts: All parts in order.
        period: The period whose answers these are; None for all answers of the plan.

    Returns:
        The answers, and the digest of the durable manifest, which is the digest of the answers.

    Raises:
        InputError: The parts do not have each answer of the plan, or of the period, once; or a
            manifest of another release is there.
        OSError: The manifest cannot be written.
    """
    size = release.plan.strategy.released_size
    _check_places(release.plan, parts, period)
    content = _encode_manifest(release, parts, period)
    answers = folder.join(ANSWER_PARTS)
    is_first = answers.create(MANIFEST, content)
    if isinstance(folder, LocalPlace):
        # The files are on the disk. The names of their folders must be there too.
        sync(folder.path)
        sync(folder.path.parent)
    if is_first:
        return PartedAnswers(folder, parts, size), hash_content(content)
    fields, digest = read_manifest(folder, release.plan, period)
    earlier: PartedAnswers = fields["answers"]
    if [part.digest for part in earlier.parts] != [part.digest for part in parts]:
        raise InputError(
            f"{answers}/{MANIFEST} belongs to other answers. Name a folder that is new or empty."
        )
    return earlier, digest


def read_manifest(
    folder: Place, plan: Plan, period: Period | None = None
) -> tuple[dict[str, Any], str]:
    """Read the manifest of a release's answers.

    Args:
        folder: The folder.
        plan: The plan.
        period: The period that the answers must be of; None for all answers of the plan.

    Returns:
        The fields of the release by the names of `Release`'s attributes, with answers that are read
        when needed; and the digest of the manifest.

    Raises:
        InputError: The manifest is missing, damaged, or of another plan or period.
        OSError: The manifest cannot be read.
    """
    name = f"{folder}/{ANSWER_PARTS}/{MANIFEST}"
    try:
        content = folder.join(ANSWER_PARTS).read(MANIFEST)
    except FileNotFoundError:
        raise InputError(f"{name} is missing. Get the folder again from its publisher.") from None
    header = read_manifest_header(name, content, _KIND, _FORMAT)
    if header.get("plan_digest") != plan.digest:
        raise InputError(
            f"{name} and {PLAN} belong to different plans. Use the files of one folder."
        )
    if header.get("period") != (None if period is None else vars(period)):
        raise InputError(
            f"{name} belongs to another series or period. Use the files of one series."
        )
    try:
        parts = [_parse_part(k, one) for k, one in enumerate(header["parts"])]
        _check_places(plan, parts, period)
        answers = PartedAnswers(folder, parts, plan.strategy.released_size)
        fields = _parse_fields(plan, header) | {"answers": answers}
    except Exception:  # entries that are missing or of another type raise many kinds of errors
        raise InputError(
            f"{name}: the answers do not match their description. Get the folder again from its "
            "publisher."
        ) from None
    return fields, hash_content(content)


def read_charge(folder: Place) -> Entry | None:
    """Read the charge that the release in a folder names.

    Returns:
        The charge; None if the folder has no readable answers, or no ledger recorded them.
    """
    try:
        content = folder.join(ANSWER_PARTS).read(MANIFEST)
        return _read_entry(read_manifest_header(str(folder), content, _KIND, _FORMAT)["entry"])
    except Exception:  # entries that are missing or of another type raise many kinds of errors
        return None


def _parse_part(number: int, described: Any) -> AnswersPart:
    """Read a manifest's description of a part."""
    place = tuple(
        Stride(int(start), tuple(map(int, shape)), tuple(map(int, strides)))
        for start, shape, strides in described["place"]
    )
    return AnswersPart(number, place, int(described["bytes"]), str(described["digest"]))


def _check_places(plan: Plan, parts: Sequence[AnswersPart], period: Period | None) -> None:
    """Check the number of answers in all parts and the range of each part.

    Raises:
        InputError: The parts cannot have each answer once.
    """
    size = plan.strategy.released_size
    if period is not None:
        if [part.place for part in parts] != [period.place_answers(plan)]:
            raise InputError("the number of answers of a period differs from the plan's")
        return
    strides = [stride for part in parts for stride in part.place]
    fits = sum(part.size for part in parts) == size
    fits = fits and all(len(one.shape) == len(one.strides) for one in strides)
    for one in strides:
        first, end = one.ends
        fits = (
            fits and min(one.shape, default=0) >= 0 and (not one.size or 0 <= first < end <= size)
        )
    if not fits:
        raise InputError(f"the parts do not contain each of {size} answers exactly once")


def _describe_fields(release: NoisyAnswers) -> Header:
    """Describe the fields of a release, except its answers, for the header of a manifest."""
    entry = release.entry
    header = {
        "plan_digest": release.plan.digest,
        "rho": release.rho.hex(),
        "noise_scale": release.noise_scale.hex(),
        "entry": None if entry is None else _describe_entry(entry),
        "files": dict(name_files(release.plan.workload)),
        "versions": list_core_versions(),
    }
    optional = {
        "limited": release.limited,
        "rows": release.rows,
        "counts": release.seal,
        "outside": list(release.outside) or None,
        "coverage": None if (noisy := release.coverage_answers) is None else noisy.tolist(),
    }
    return header | {key: value for key, value in optional.items() if value is not None}


def _describe_entry(entry: Entry) -> Header:
    """Describe the charge of a release."""
    return vars(entry) | {
        "rho": encode_fraction(entry.rho),
        "bound_unit": entry.bound_unit.to_spec(),
        "noise": None if entry.noise is None else dataclasses.asdict(entry.noise),
    }


def _read_entry(described: Header | None) -> Entry | None:
    """Read the charge of a release; None if no ledger recorded it.

    Raises:
        InputError: Its unit of privacy is invalid.
    """
    if described is None:
        return None
    rho, unit = decode_fraction(described["rho"]), read_bound_unit(described["bound_unit"])
    noise = None if described["noise"] is None else DiscreteNoise(**described["noise"])
    return Entry(**(described | {"rho": rho, "bound_unit": unit, "noise": noise}))


def _parse_fields(plan: Plan, header: Header) -> dict[str, Any]:
    """Read the fields of the release, except its answers.

    Raises:
        Exception: They do not fit the plan or each other; errors of any kind are possible.
    """
    limited = header.get("limited")
    rho, noise_scale = float.fromhex(header["rho"]), float.fromhex(header["noise_scale"])
    exact = plan.strategy.compute_rho(plan.noise_std * noise_scale)
    # The rho of a release is rounded up slightly.
    fits = noise_scale > 0 and exact <= Fraction(rho) <= exact * (1 + Fraction(1, 10**9))
    entry = _read_entry(header["entry"])
    fits = fits and (entry is None or entry.plan_digest == plan.digest)
    coverage = header.get("coverage")
    if coverage is not None:
        coverage = np.array([operator.index(answer) for answer in coverage], dtype=np.int64)
    size = 0 if coverage is None else coverage.size
    if not fits or limited not in LIMITS or size != plan.noise.answers - plan.strategy.size:
        raise PlanError("the limit, the rho, the charge or the coverage does not fit the plan")
    return {
        "plan": plan,
        "rho": rho,
        "noise_scale": noise_scale,
        "entry": entry,
        "limited": limited,
        "rows": header.get("rows"),
        "seal": header.get("counts"),
        "outside": tuple(map(str, header.get("outside", ()))),
        "coverage_answers": coverage,
    }
