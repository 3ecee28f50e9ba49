"""Plan files: one NumPy .npz archive of a JSON header and arrays, with a digest of both.

The functions `describe_*` turn an object into a header and arrays, and the functions `read_*` turn
them back. The text of each query group is what JSON makes of its description, with sorted keys.
There may be a million groups, whose descriptions are mostly alike, so the text is put together from
the texts of their factors and of the forms of their targets.
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fitplug.certify import Tiers
from fitplug.domain import Attribute, Domain
from fitplug.errors import PlanError, WorkloadError
from fitplug.families import (
    Duals,
    Frame,
    IntegerStrategy,
    Objective,
    PairStructure,
    PersonStructure,
    PersonTreeStructure,
    Structure,
    analyse_structure,
    find_family,
)
from fitplug.files import (
    Arrays,
    EncodedJson,
    Header,
    compute_digest,
    read_with_digest,
    select_prefixed,
    write_with_digest,
)
from fitplug.neighbours import RecordSets
from fitplug.numeric import guard_linear_algebra
from fitplug.plan.plan_record import PlanRecord, Proof
from fitplug.plan.verification import REPLACE, describe_failure, verify_on_reading
from fitplug.workload import (
    Factor,
    QueryGroups,
    Workload,
    build_interval_factor,
    build_labelled_factor,
    make_bound_workload,
    queries,
    read_unit,
)

AnyPlan = TypeVar("AnyPlan", bound=PlanRecord)

FORMAT = 1
"""The format of plan files."""


def describe_plan(plan: PlanRecord) -> tuple[Header, Arrays]:
    """Build the header and arrays from which `read_plan` reads the plan back."""
    proof, (p, q, frame) = plan.proof, plan.proof.duals
    header, arrays = describe_workload(plan.workload)
    of_strategy = describe_strategy(plan.strategy)
    header, arrays = header | of_strategy[0], arrays | of_strategy[1]
    header |= {
        "format": FORMAT,
        "noise_std": plan.noise_std.hex(),
        "scale": plan.scale.hex(),
        "lower_bound": plan.lower_bound.hex(),
        "tolerance": plan.tolerance,
        "total_error_weight": plan.objective.weight.hex(),
        "iterations": proof.iterations,
        "ended": proof.ended,
        "frame": [frame.columns, frame.rests, frame.tilt.hex()],
    }
    arrays |= {
        "p": p,
        "q": q,
        "tiers.of_cell": proof.tiers.of_cell,
        "tiers.p": proof.tiers.p,
        "tiers.q": proof.tiers.q,
    }
    if plan.has_coverage:
        header["coverage"] = True
    if plan.objective.budgets is not None:
        arrays["budgets"] = plan.objective.budgets
    return header, arrays


def plan_digest(plan: PlanRecord) -> str:
    """Compute the SHA-256, in hexadecimal digits, of the whole content of a plan."""
    return compute_digest(*describe_plan(plan))


def write_plan(plan: PlanRecord, path: str | PathLike[str]) -> None:
    """Write a plan to one file; see `Plan.save`."""
    write_with_digest(path, *describe_plan(plan))


def read_plan(path: str | PathLike[str], kind: type[AnyPlan]) -> tuple[AnyPlan, str]:
    """Read a plan from a file; see `Plan.load`.

    Args:
        path: The file.
        kind: The class of the plan.

    Returns:
        The plan and its digest.

    Raises:
        PlanError: The file does not hold a plan.
    """
    header, arrays, digest = read_contents(path)
    try:
        columns, rests, tilt = header["frame"]
        frame = Frame(int(columns), int(rests), float.fromhex(tilt))
        plan = kind(
            workload=(workload := read_workload(header, arrays)),
            strategy=read_strategy(workload, header, arrays),
            objective=Objective(arrays.get("budgets"), float.fromhex(header["total_error_weight"])),
            noise_std=float.fromhex(header["noise_std"]),
            scale=float.fromhex(header["scale"]),
            lower_bound=float.fromhex(header["lower_bound"]),
            proof=Proof(
                Duals(arrays["p"], arrays["q"], frame),
                Tiers(arrays["tiers.of_cell"], arrays["tiers.p"], arrays["tiers.q"]),
                iterations=int(header["iterations"]),
                ended=header["ended"],
            ),
            tolerance=float(header["tolerance"]),
            has_coverage=header.get("coverage", False),
        )
        with guard_linear_algebra():
            verify_on_reading(plan)
        if plan_digest(plan) != digest:
            raise PlanError("the content is not as fitplug writes it")
    except PlanError as error:
        raise PlanError(f"{path}: {describe_failure(error)}") from None
    except Exception:  # entries that are missing or of another type raise errors of many kinds
        raise PlanError(f"{path}: the plan file is incomplete. {REPLACE}") from None
    return plan, digest


def describe_workload(workload: Workload) -> tuple[Header, Arrays]:
    """Build the header and arrays from which `read_workload` reads the workload back."""
    groups, arrays = describe_groups(workload.groups)
    arrays |= {"targets": workload.groups.values, "variances": workload.groups.variances}
    header: Header = {"domain": list(workload.domain.spec().items()), "groups": groups}
    if workload.domain.value_labels:
        header["value_labels"] = workload.domain.value_labels
    return header, arrays


def describe_strategy(strategy: IntegerStrategy[Structure]) -> tuple[Header, Arrays]:
    """Build the header and arrays from which `read_strategy` reads the strategy back.

    They join the workload's header and arrays.
    """
    of_blocks, arrays = strategy.describe_blocks()
    arrays |= {
        "column_squares": strategy.column_squares,
        "unit_variances": strategy.unit_variances,
    }
    for a, matrix in enumerate(strategy.attribute_matrices):
        arrays |= {f"split{a}.{name}": array for name, array in matrix.arrays_in_file.items()}
    header: Header = {
        **strategy.structure.names_in_files,
        **of_blocks,
        "unit": strategy.structure.unit.to_spec(),
        "sensitivity_squared": str(strategy.sensitivity_squared),
        "max_records": str(strategy.max_records),
    }
    arrays |= strategy.structure.arrays_in_files
    return header, arrays


def read_workload(header: Header, arrays: Arrays) -> Workload:
    """Build the workload from its description, as a user would build it.

    Raises:
        PlanError: The description contradicts itself.
        Exception: The description is incomplete; errors of any kind are possible.
    """
    domain = Domain.from_spec(dict(header["domain"]), header.get("value_labels"))
    groups = []
    shapes = [tuple(described["shape"]) for described in header["groups"]]
    ends = list(itertools.accumulate(map(math.prod, shapes), initial=0))
    given, stored = arrays["targets"], arrays["variances"]
    if not len(given) == len(stored) == ends[-1]:
        raise PlanError("the number of targets differs from the number of queries")
    numbers = given.tolist()
    for g, described in enumerate(header["groups"]):
        factors: dict[str, Any] = {}
        labels = described.get("labels", {})
        for f, (attribute, kind) in enumerate(described["factors"]):
            if attribute in factors:
                raise PlanError(f"a query uses the attribute {attribute!r} twice")
            factors[attribute] = kind
            if labels or kind in ("ranges", "matrix"):
                array = arrays.get(f"group{g}.factor{f}")
                factors[attribute] = _read_factor(
                    attribute, domain[attribute], kind, array, labels.get(str(f))
                )
        value = given[ends[g] : ends[g + 1]].reshape(shapes[g]) if shapes[g] else numbers[ends[g]]
        target: dict[str, Any] = {described["target"]: value}
        if described["confidence"] is not None:
            target["confidence"] = described["confidence"]
        if "simultaneous" in described:
            target["simultaneous"] = described["simultaneous"]
        groups.append(queries(factors, name=described["name"], **target))
    built = Workload(domain, groups).groups
    if stored.dtype != np.float64:
        raise PlanError("the stored target variances are not floating-point numbers")
    # Another version of SciPy may give another last digit of a quantile, so the stored variances
    # are used. A margin of error's variance is made 2^-49 smaller than its quantile requires, so a
    # variance larger by this much still meets the target.
    differs = ~np.isclose(stored, built.variances, rtol=1.5e-15, atol=0)
    if differs.any():
        name = built.names[bisect.bisect_right(ends, int(np.argmax(differs))) - 1]
        raise PlanError(f"the stored target variances of {name!r} differ from its targets")
    return make_bound_workload(domain, replace(built, variances=stored))


def _read_factor(name: str, attribute: Attribute, kind: str, array: Any, labels: Any) -> Any:
    """Build a query's factor on an attribute from its kind, its array and the labels of its rows.

    The array and the labels are None for kinds without them.
    """
    if labels is not None:
        if kind != "matrix":
            raise PlanError(f"a query on {name!r} has row labels, but its kind cannot have labels")
        try:
            return build_labelled_factor(name, attribute, array, labels)
        except WorkloadError as error:
            raise PlanError(str(error)) from None
    if kind == "ranges":
        return build_interval_factor(name, attribute, array)
    return array if kind == "matrix" else kind


def read_strategy(workload: Workload, header: Header, arrays: Arrays) -> IntegerStrategy[Structure]:
    """Build the strategy from its description, whose claims are not checked here.

    Raises:
        PlanError: The description does not fit the workload's structure.
    """
    tree = tuple(header.get("tree", ()))
    structure = analyse_structure(
        workload,
        (*header["dense"], *tree[:1]),
        family=bool(header["ordered"]),
        tree=tree,
        unit=read_unit(header["unit"]),
        chain="chain" in header,
        siblings="siblings" in header,
    )
    named = structure.names_in_files
    if named != {key: tuple(header[key]) for key in named}:
        raise PlanError("the plan's design does not fit its queries")
    names_differences = "records.cells" in arrays
    if names_differences and isinstance(
        structure, (PairStructure, PersonStructure, PersonTreeStructure)
    ):
        sets = RecordSets(arrays["records.cells"], arrays["records.labels"])
        structure = replace(structure, named=sets)
    kind = find_family(structure).strategy
    matrices = kind.read_attribute_matrices(
        structure,
        [select_prefixed(arrays, f"split{a}.") for a in range(len(structure.block_attributes))],
    )
    build: Callable[..., IntegerStrategy[Structure]] = kind
    return build(
        structure,
        matrices,
        sensitivity_squared=int(header["sensitivity_squared"]),
        column_squares=arrays["column_squares"],
        unit_variances=arrays["unit_variances"],
        max_records=int(header["max_records"]),
        **kind.read_blocks(structure, header, arrays),
    )


def read_contents(path: str | PathLike[str]) -> tuple[Header, Arrays, str]:
    """Read the header, the arrays and the digest of a plan file.

    Raises:
        PlanError: The file is not a plan, or it is damaged or edited.
    """
    if not Path(path).is_file():
        raise PlanError(f"{path}: the plan file does not exist. Design the plan first.")
    try:
        header, arrays, digest = read_with_digest(path)
        known = header["format"]
    except Exception:  # zip, NumPy and JSON each raise their own kinds on damage
        raise PlanError(f"{path}: this is not a plan file, or it is damaged. {REPLACE}") from None
    if known != FORMAT:
        raise PlanError(
            f"{path}: the plan has format {known}, but this fitplug reads format {FORMAT}. Design "
            "the plan again."
        )
    if digest is None:
        raise PlanError(f"{path}: the plan file was edited or damaged. {REPLACE}")
    return header, arrays, digest


def describe_groups(groups: QueryGroups) -> tuple[EncodedJson, Arrays]:
    """Describe groups as a list of JSON objects, with the arrays that their factors need."""
    starts = ['{"confidence": ' + json.dumps(form.confidence) for form in groups.forms]
    ends = [
        f', "shape": {json.dumps(form.shape)}'
        + (', "simultaneous": true' if form.simultaneous else "")
        + f', "target": {json.dumps(form.kind)}}}'
        for form in groups.forms
    ]
    factors = [json.dumps([factor.attribute, factor.kind]) for factor in groups.factors]
    encode, indices = json.encoder.encode_basestring_ascii, groups.factor_indices.tolist()
    texts, begin = [], 0
    for name, count, form in zip(
        groups.names, groups.factor_counts.tolist(), groups.form_indices.tolist(), strict=True
    ):
        places = indices[begin : begin + count]
        begin += count
        asked = ", ".join([factors[f] for f in places])
        labels = _describe_labels([groups.factors[f] for f in places]) if groups.with_labels else ""
        texts.append(
            f'{starts[form]}, "factors": [{asked}]{labels}, "name": {encode(name)}{ends[form]}'
        )
    return EncodedJson("[" + ", ".join(texts) + "]"), _gather_arrays(groups)


def _describe_labels(factors: Sequence[Factor]) -> str:
    """Describe the labels of the rows of a group's factors, if they have any."""
    labels = {str(f): factor.names for f, factor in enumerate(factors) if factor.names is not None}
    return f', "labels": {json.dumps(labels, sort_keys=True)}' if labels else ""


def _gather_arrays(groups: QueryGroups) -> Arrays:
    """Gather the arrays of factors that their kinds alone do not describe."""
    arrays: Arrays = {}
    for i, factor in enumerate(groups.factors):
        if factor.kind not in ("ranges", "matrix"):
            continue
        array = factor.intervals() if factor.kind == "ranges" else factor.matrix()
        for place in np.flatnonzero(groups.factor_indices == i).tolist():
            g = int(np.searchsorted(groups.factor_starts, place, side="right")) - 1
            arrays[f"group{g}.factor{place - groups.factor_starts[g]}"] = array
    return arrays
