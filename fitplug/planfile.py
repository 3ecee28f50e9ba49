"""Plan files: one NumPy .npz archive of a JSON header and arrays, with a digest of both."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.basis import Basis
from fitplug.domain import Domain
from fitplug.errors import PlanError
from fitplug.factors import Factor
from fitplug.targets import Target
from fitplug.workload import QueryGroup, Workload

Header: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

FORMAT = 1


def describe(workload: Workload, basis: Basis) -> tuple[Header, Arrays]:
    """The header and arrays that `read_workload` and `read_basis` read back."""
    arrays: Arrays = {"basis.index": basis.index, "basis.scale": basis.scale}
    groups = []
    for g, group in enumerate(workload.groups):
        arrays[f"group{g}.variances"] = group.variances
        arrays[f"group{g}.target"] = group.target.value
        factors = []
        for f, factor in enumerate(group.factors):
            factors.append([factor.attribute, factor.kind, factor.size])
            for part in ("cells", "array"):
                given = getattr(factor, part)
                if given is not None:
                    arrays[f"group{g}.factor{f}.{part}"] = given
        groups.append(
            {
                "name": group.name,
                "factors": factors,
                "target": group.target.kind,
                "confidence": group.target.confidence,
            }
        )
    header = {
        "format": FORMAT,
        "domain": list(workload.domain.spec().items()),
        "groups": groups,
        "basis": basis.kind,
    }
    return header, arrays


def read_workload(header: Header, arrays: Arrays) -> Workload:
    """The workload described. Raises ValueError or KeyError for anything but that."""
    domain = Domain.from_spec(dict(header["domain"]))
    groups = []
    for g, described in enumerate(header["groups"]):
        factors = tuple(
            Factor(
                attribute,
                kind,
                size,
                cells=arrays.get(f"group{g}.factor{f}.cells"),
                array=arrays.get(f"group{g}.factor{f}.array"),
            )
            for f, (attribute, kind, size) in enumerate(described["factors"])
        )
        asked = Target(described["target"], arrays[f"group{g}.target"], described["confidence"])
        groups.append(QueryGroup(described["name"], factors, asked, arrays[f"group{g}.variances"]))
    return Workload.of_groups(domain, groups)


def read_basis(header: Header, arrays: Arrays) -> Basis:
    """The basis described."""
    return Basis(header["basis"], arrays["basis.index"], arrays["basis.scale"])


def digest(header: Header, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """SHA-256, in hex, of a header and arrays, the same on every machine."""
    whole = hashlib.sha256(_json(header))
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        whole.update(f"\0{name} {little.dtype.str} {array.shape}\0".encode())
        whole.update(little.tobytes())
    return whole.hexdigest()


def write(path: str | PathLike[str], header: Header, arrays: Arrays) -> None:
    """Write the file whole or not at all. Raises OSError."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    text = np.frombuffer(_json(header), dtype=np.uint8)
    mark = np.frombuffer(digest(header, arrays).encode(), dtype=np.uint8)
    try:
        with partial.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, header=text, digest=mark, **arrays)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def read(path: str | PathLike[str]) -> tuple[Header, Arrays]:
    """Header and arrays of a plan file. Raises PlanError if it is no plan, damaged or edited."""
    if not Path(path).is_file():
        raise PlanError(f"{path}: there is no such plan file; design one first")
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
        mark = arrays.pop("digest").tobytes().decode()
        known = header["format"]
    except (
        OSError, EOFError, ValueError, KeyError, TypeError, AttributeError,
        NotImplementedError, zipfile.BadZipFile, zlib.error,
    ):  # fmt: skip
        raise PlanError(f"{path}: this is no plan file, or it is damaged") from None
    if known != FORMAT:
        raise PlanError(f"{path}: plan format {known} is not {FORMAT}; design the plan again")
    if digest(header, arrays) != mark:
        raise PlanError(f"{path}: the plan was edited after it was designed; design it again")
    for array in arrays.values():
        array.setflags(write=False)
    return header, arrays


def _json(header: Header) -> bytes:
    return json.dumps(header, sort_keys=True, ensure_ascii=True).encode()
