"""Plan files: one NumPy .npz archive of a JSON header and arrays, with a digest of both."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug import archive
from fitplug.basis import Basis
from fitplug.domain import Attribute, Domain
from fitplug.errors import PlanError, WorkloadError
from fitplug.factors import interval_factor, labelled_factor
from fitplug.layout import layout
from fitplug.splits import Whole
from fitplug.strategy import Family, Strategy, contrasts
from fitplug.symmetry import structure as analysed
from fitplug.trees import IntegerTree
from fitplug.workload import QueryGroup, Workload, queries

Header: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Array: TypeAlias = npt.NDArray[np.float64]

FORMATS = (3, 4, 5)
"""What is read. 4 has simultaneous targets and 5 labels of a matrix's rows; plans without them stay
files of format 3, with the digest that ledgers and releases know them by.
"""


def describe(workload: Workload) -> tuple[Header, Arrays]:
    """The header and arrays that `read_workload` reads back."""
    arrays: Arrays = {
        "targets": _joined([group.target.value for group in workload.groups]),
        "variances": _joined([_once(group) for group in workload.groups]),
    }
    groups = []
    for g, group in enumerate(workload.groups):
        factors = []
        for f, factor in enumerate(group.factors):
            factors.append([factor.attribute, factor.kind])
            if factor.kind == "ranges":
                arrays[f"group{g}.factor{f}"] = factor.intervals()
            elif factor.kind == "matrix":
                arrays[f"group{g}.factor{f}"] = factor.matrix()
        described: Header = {
            "name": group.name,
            "factors": factors,
            "target": group.target.kind,
            "shape": group.target.value.shape,
            "confidence": group.target.confidence,
        }
        if group.target.simultaneous:
            described["simultaneous"] = True
        if labels := {str(f): x.names for f, x in enumerate(group.factors) if x.names is not None}:
            described["labels"] = labels
        groups.append(described)
    header = {
        "format": _format(groups),
        "domain": list(workload.domain.spec().items()),
        "groups": groups,
    }
    return header, arrays


def _format(groups: Sequence[Header]) -> int:
    """The oldest format that has what the groups need."""
    if any("labels" in described for described in groups):
        return 5
    return 4 if any("simultaneous" in described for described in groups) else 3


def describe_strategy(strategy: Strategy) -> tuple[Header, Arrays]:
    """The header and arrays that `read_strategy` reads back, beside those of the workload."""
    arrays: Arrays = {
        "column_squares": strategy.column_squares,
        "unit_variances": strategy.unit_variances,
    }
    for i, family in enumerate(strategy.families):
        arrays[f"family{i}.blocks"], arrays[f"family{i}.M"] = family.blocks, family.M
        arrays[f"family{i}.index"] = family.basis.index
        arrays[f"family{i}.scale"] = family.basis.scale
    for a, split in enumerate(strategy.splits):
        arrays |= {f"split{a}.{name}": array for name, array in split.arrays().items()}
    header = {
        "dense": strategy.structure.dense,
        "ordered": strategy.structure.ordered,
        "bases": [family.basis.kind for family in strategy.families],
        "sensitivity_squared": str(strategy.sensitivity_squared),
        "max_records": str(strategy.max_records),
    }
    return header, arrays


def _joined(values: Sequence[Array]) -> Array:
    return np.concatenate([value.ravel() for value in values])


def _once(group: QueryGroup) -> Array:
    """The targets in the shape they were asked in, which broadcasts to the group's."""
    asked = group.target.value.shape
    first = (0,) * (len(group.shape) - len(asked))
    return group.variances[(*first, *(slice(0, 1) if n == 1 else slice(None) for n in asked))]


def read_workload(header: Header, arrays: Arrays) -> Workload:
    """The workload described, built as a user would build it. Raises PlanError for a description
    that says two things at once, and whatever building raises for one that says nothing.
    """
    domain = Domain.from_spec(dict(header["domain"]))
    groups = []
    shapes = [tuple(described["shape"]) for described in header["groups"]]
    ends = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
    if not len(arrays["targets"]) == len(arrays["variances"]) == ends[-1]:
        raise PlanError("the targets are not numbers of their shapes")
    for g, described in enumerate(header["groups"]):
        factors: dict[str, Any] = {}
        for f, (attribute, kind) in enumerate(described["factors"]):
            if attribute in factors:
                raise PlanError(f"a query names the attribute {attribute!r} twice")
            part = arrays.get(f"group{g}.factor{f}")
            labels = described.get("labels", {}).get(str(f))
            factors[attribute] = _factor(attribute, domain[attribute], kind, part, labels)
        value = arrays["targets"][ends[g] : ends[g + 1]].reshape(shapes[g])
        asked: dict[str, Any] = {described["target"]: value}
        if described["confidence"] is not None:
            asked["confidence"] = described["confidence"]
        if "simultaneous" in described:
            asked["simultaneous"] = described["simultaneous"]
        groups.append(queries(factors, name=described["name"], **asked))
    workload = Workload(domain, groups)
    kept = []
    for g, group in enumerate(workload.groups):
        stored = arrays["variances"][ends[g] : ends[g + 1]].reshape(shapes[g])
        if stored.dtype != np.float64:
            raise PlanError(f"the targets of {group.name!r} are not numbers")
        # Another version of SciPy may give another last digit of a quantile; keep the one used.
        # Targets step below the quantile by 2^-49: this much more is still within what was asked.
        if not np.allclose(stored, _once(group), rtol=1.5e-15, atol=0):
            raise PlanError(f"the targets of {group.name!r} are not what it says it asked")
        kept.append(replace(group, variances=np.broadcast_to(stored, group.shape)))
    return Workload.of_groups(domain, kept)


def _factor(name: str, attribute: Attribute, kind: str, part: Any, labels: Any) -> Any:
    """What a query asks of an attribute, by its kind, its array and its rows' labels, if any."""
    if labels is not None:
        if kind != "matrix":
            raise PlanError(f"a query of {name!r} has labels and is no matrix")
        try:
            return labelled_factor(name, attribute, part, labels)
        except WorkloadError as error:
            raise PlanError(str(error)) from None
    if kind == "ranges":
        return interval_factor(name, attribute, part)
    return part if kind == "matrix" else kind


def read_strategy(workload: Workload, header: Header, arrays: Arrays) -> Strategy:
    """The strategy described, as it claims to be. Raises PlanError for another structure."""
    structure = analysed(workload, header["dense"], family=bool(header["ordered"]))
    if (structure.dense, structure.ordered) != (tuple(header["dense"]), tuple(header["ordered"])):
        raise PlanError("the attributes it takes for symmetric are not")
    splits = list(contrasts(structure))
    for a, shape in enumerate(layout(structure).trees if structure.ordered else ()):
        if structure.split[a] not in structure.ordered:
            continue
        splits[a] = matrix = Whole(arrays[f"split{a}.matrix"])
        if shape is not None:
            splits[a] = IntegerTree(shape, matrix, arrays[f"split{a}.multipliers"])
    families = [
        Family(
            blocks=arrays[f"family{i}.blocks"],
            basis=Basis(kind, arrays[f"family{i}.index"], arrays[f"family{i}.scale"]),
            M=arrays[f"family{i}.M"],
        )
        for i, kind in enumerate(header["bases"])
    ]
    return Strategy(
        structure=structure,
        families=tuple(families),
        splits=tuple(splits),
        sensitivity_squared=int(header["sensitivity_squared"]),
        column_squares=arrays["column_squares"],
        unit_variances=arrays["unit_variances"],
        max_records=int(header["max_records"]),
    )


def digest(header: Header, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """SHA-256, in hex, of a header and arrays, the same on every machine."""
    whole = hashlib.sha256(_json(header))
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        whole.update(f"\0{name} {little.dtype.str} {array.shape}\0".encode())
        whole.update(little.tobytes())
    return whole.hexdigest()


def write(path: str | PathLike[str], header: Header, arrays: Arrays, mode: int = 0o666) -> str:
    """Write the file whole or not at all; returns the digest in it. mode: its permissions. Raises
    OSError.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    text = np.frombuffer(_json(header), dtype=np.uint8)
    own = digest(header, arrays)
    mark = np.frombuffer(own.encode(), dtype=np.uint8)
    try:
        number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(number, "wb") as file:
            archive.write(file, {"header": text, "digest": mark} | arrays)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return own


def read(path: str | PathLike[str]) -> tuple[Header, Arrays]:
    """Header and arrays of a plan file. Raises PlanError if it is no plan, damaged or edited."""
    if not Path(path).is_file():
        raise PlanError(f"{path}: there is no such plan file; design one first")
    try:
        header, arrays, whole = opened(path)
        known = header["format"]
    except Exception:  # zip, NumPy and JSON each raise their own kinds on damage
        raise PlanError(
            f"{path}: this is no plan file, or it is damaged; design it again"
        ) from None
    if known not in FORMATS:
        wanted = " or ".join(map(str, FORMATS))
        raise PlanError(f"{path}: plan format {known} is not {wanted}; design the plan again")
    if not whole:
        raise PlanError(f"{path}: the plan was edited after it was designed; design it again")
    return header, arrays


def opened(path: str | PathLike[str]) -> tuple[Header, Arrays, bool]:
    """Header and arrays, read-only, of a file that `write` wrote, and whether they are those that
    it marked. Raises whatever zip, NumPy and JSON do on damage, and ValueError for a file that
    would unpack to more than `fitplug.archive` has room for.
    """
    with Path(path).open("rb") as file:
        header, arrays = archive.read(file)
    mark = arrays.pop("digest").tobytes().decode()
    return header, arrays, digest(header, arrays) == mark


def _json(header: Header) -> bytes:
    return json.dumps(header, sort_keys=True, ensure_ascii=True).encode()
