"""Every field of a plan file is edited in turn, with the digest that then fits.

Either the file is refused, or it says what it said before of all that is released and charged.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import issparse

import fitplug as fp
from fitplug.families import analysis as symmetry
from fitplug.families.base import tree_shape
from fitplug.families.base.mechanism import FEWEST_RECORDS
from fitplug.families.tree.strategy.blocks import TreeIntegers
from fitplug.files import compute_digest, write_with_digest
from fitplug.plan.verification import check_privacy
from tests.helpers.chains import ask_chain
from tests.helpers.plans import (
    describe,
    geography,
    mixed_workload,
    people_plan,
    symmetric_workload,
)
from tests.helpers.tree_plans import design_tree

PLANS: dict[str, Callable[[], fp.Plan]] = {
    "dense": people_plan,
    "symmetric": lambda: fp.design(symmetric_workload(), rho=0.1),
    "total error": lambda: fp.design(mixed_workload(), total_error_weight=0.1),
    "budgets": lambda: fp.design(mixed_workload(), cell_budgets=[[[0.5]], [[0.1]], [[2.0]]]),
    "product, with a tree": lambda: fp.design(geography()),
    "tree": lambda: design_tree(few_people_by_place(), tolerance=1e-2),
    "chain": lambda: fp.design(
        ask_chain(
            10,
            fp.queries({"s": "identity", "x": "prefix"}, variance=100.0),
            fp.total(variance=20.0),
            s=["a", "b"],
        )
    ),
}
SMALL = ("product, with a tree", "chain")
"""Plans of structures that are for larger workloads."""
SLOW = ("chain", "tree")
LONG = ("total error", "budgets", "product, with a tree")
"""Plans whose tests take longer, and those whose tests take longest."""


def few_people_by_place() -> fp.Workload:
    """A county of two identical tracts, one of three that are told apart, and one of one."""
    tracts = {"a": 2, "b": 3, "c": 1}
    leaves = [(county, f"{county}{i}") for county, count in tracts.items() for i in range(count)]
    place = fp.Hierarchy(["county", "tract"], leaves)
    domain = fp.Domain({"place": place, "age": fp.Integers(0, 1)})
    # Each county has a target of its own, so that another order of the counties is refused.
    targets = [[2.0], [3.0], [4.0]]
    pyramids = fp.queries({"place": "county", "age": "prefix"}, variance=targets, name="pyramids")
    return fp.Workload(domain, [fp.queries({"place": "tract"}, variance=3.0), pyramids])


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            make,
            id=name,
            marks=[pytest.mark.slow] * (name in SLOW) + [pytest.mark.long] * (name in LONG),
        )
        for name, make in PLANS.items()
    ],
)
def plan(request: pytest.FixtureRequest) -> Iterator[fp.Plan]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param in [PLANS[name] for name in SMALL]:
            patch.setattr(symmetry, "MOST_CELLS", 1)
            patch.setattr(symmetry, "MOST_DENSE", 0)
            patch.setattr(symmetry, "LEAST_CHAIN", 1)
            patch.setattr(tree_shape, "LEAST_TREE", 1)
        yield request.param()


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The places within a header, all containers too."""
    if path:
        yield path, value
    if isinstance(value, (dict, list)):
        for key, held in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(held, (*path, key))


def other_values(value: Any) -> Iterator[Any]:
    """What an editor could write instead."""
    if isinstance(value, bool) or value is None:
        yield from (not value, 0.5, "x")
    elif isinstance(value, int):
        yield from (value + 1, value - 1, float(value), str(value))
    elif isinstance(value, float):
        yield from (value * (1 + 1e-6), value / 2, str(value))
    elif isinstance(value, list):
        yield from (value[:-1], [*value, *value[-1:]], value[::-1], tuple(value[:1]), {})
    elif isinstance(value, dict):
        yield from ({**value, "note": 1}, {})
    elif value.startswith(("0x", "-0x")):
        number = float.fromhex(value)
        yield from ((number * f + a).hex() for f, a in ((1 + 1e-6, 0), (1 - 1e-6, 0), (2, 1)))
        yield from (value + "0", value.upper(), number)
    elif value.isdigit():
        number = int(value)
        yield from map(str, (number + 1, number - 1, number // 2, number * 2))
        yield from (f"0{value}", f"+{value}", int(value))
    else:
        yield from (value + "x", value[:-1], "total", "prefix", 7)


def other_arrays(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    flat = array.ravel()
    for at in sorted({0, flat.size - 1, int(np.abs(flat).argmax())}) if flat.size else ():
        changes = (1, -1, 1000) if array.dtype.kind == "i" else ()
        factors = (1 + 1e-6, 1 - 1e-6, 2.0, 0.0) if array.dtype.kind == "f" else ()
        for new in [flat[at] + c for c in changes] + [flat[at] * f for f in factors]:
            other = flat.copy()
            other[at] = new
            yield other.reshape(array.shape)
    yield np.append(flat, flat[-1:])
    yield flat[:-1]
    yield array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
    yield array.astype(str)
    yield array[None]
    yield flat[::-1].reshape(array.shape) if array.ndim else array + 1


def edits(header: Any, arrays: Any) -> Iterator[tuple[str, Any, Any]]:
    """What is edited, header and arrays."""
    for path, value in leaves(header):
        for new in other_values(value):
            other = copy.deepcopy(header)
            inside = other
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = new
            yield f"{path} = {new!r}", other, arrays
    for key in header:
        yield f"{key} left out", {k: v for k, v in header.items() if k != key}, arrays
    yield "another key", {**header, "note": 1}, arrays
    for name, array in arrays.items():
        for i, new in enumerate(other_arrays(array)):
            yield f"{name}, change {i}", header, {**arrays, name: new}
        yield f"{name} left out", header, {k: v for k, v in arrays.items() if k != name}
    yield "another array", header, {**arrays, "note": np.ones(1)}
    yield "factors that no group has", header, {**arrays, "group0.factor9": np.eye(2)}


def counts(plan: fp.Plan) -> Callable[[tuple[str, ...]], npt.NDArray[np.int64]]:
    """One histogram, by position of its cells alone, over the attributes the workload uses.

    It is the same if attributes of other sizes are in another order.
    """
    rng = np.random.default_rng(3)
    names = sorted(plan.domain.names, key=lambda name: plan.domain[name].size)
    x = rng.integers(0, 50, plan.domain.shape_of(names))

    def counted(wanted: tuple[str, ...]) -> npt.NDArray[np.int64]:
        out = tuple(i for i, name in enumerate(names) if name not in wanted)
        left = [name for name in names if name in wanted]
        return np.asarray(x.sum(axis=out)).transpose([left.index(n) for n in wanted])

    return counted


def says(plan: fp.Plan) -> dict[str, Any]:
    """All that depends on the plan in what is charged and released."""
    answers = plan.strategy.answer_exactly(counts(plan))
    return {
        "rho": (plan.rho_exact, plan.rho, plan.noise_std),
        "records": plan.strategy.max_records,
        "answers": sorted(map(abs, answers.tolist())),
    }


def floats(plan: fp.Plan) -> npt.NDArray[np.float64]:
    # Sorted, as the axes of a group may be named in another order.
    parts = [np.sort(v.ravel()) for by in (plan.variances, plan.targets) for v in by.values()]
    return np.concatenate([*parts, np.sort(plan.profile().ravel()), [plan.lower_bound, plan.scale]])


@pytest.mark.long
def test_every_field_is_held_or_changes_nothing(plan: fp.Plan, tmp_path: Path) -> None:
    header, arrays = describe(plan)
    header = json.loads(json.dumps(header))
    path = tmp_path / "plan.npz"
    write_with_digest(path, header, arrays)
    assert fp.Plan.load(path).digest == plan.digest
    expected, numbers = says(plan), floats(plan)
    refused, kept = 0, []
    for what, edited, changed in edits(header, arrays):
        same_content = compute_digest(edited, changed) == plan.digest
        write_with_digest(path, edited, changed)
        try:
            loaded = fp.Plan.load(path)
            loaded.verify()
        except fp.PlanError:
            refused += 1
            assert not same_content, f"refused, though nothing was changed: {what}"
            continue
        if same_content:
            continue
        kept.append(what)
        assert loaded.digest != plan.digest, what
        assert says(loaded) == expected, what
        # Floats may be on the safe side by as little as another machine rounds otherwise.
        np.testing.assert_allclose(floats(loaded), numbers, rtol=1.1e-8, err_msg=what)
    assert refused > 5 * len(kept)
    # What may be edited: names and labels, which make another honest plan; the proof, as long as
    # it proves the bound; what is only told; the sign of a contrast. And nothing else.
    told = ("('domain'", "('groups'", "('iterations',)", "('tolerance',)", "('ended',)", "p,", "q,",
            "('frame'", "tiers.", "budgets,", "split0.matrix, change 11")  # fmt: skip
    assert [what for what in kept if not what.startswith(told)] == []


def test_fewer_records_claimed_are_refused_when_loading(plan: fp.Plan, tmp_path: Path) -> None:
    header, arrays = describe(plan)
    path = tmp_path / "plan.npz"
    for records in (0, 1, plan.strategy.max_records - 1, plan.strategy.max_records + 1, 10**30):
        write_with_digest(path, header | {"max_records": str(records)}, arrays)
        with pytest.raises(fp.PlanError, match="number of rows it can hold"):
            fp.Plan.load(path)


def test_plans_that_hold_too_few_records_are_refused(plan: fp.Plan) -> None:
    """All claims of such a plan are true: it would clamp the answers of small populations."""
    strategy = plan.strategy
    times = 2 ** (plan.strategy.max_records.bit_length() - FEWEST_RECORDS.bit_length() + 2)
    if isinstance(strategy, TreeIntegers):
        blocks = [dataclasses.replace(t, root=t.root * times) for t in strategy.tree_blocks]
        strategy = dataclasses.replace(strategy, tree_blocks=tuple(blocks))
    else:
        sets = [dataclasses.replace(f, M=f.M * times) for f in strategy.block_sets]
        strategy = dataclasses.replace(strategy, block_sets=tuple(sets))
    hostile = dataclasses.replace(
        strategy,
        **strategy.compute_cost()._asdict(),
    )
    assert 0 < hostile.max_records < FEWEST_RECORDS
    with pytest.raises(fp.PlanError, match="cannot hold 500,000,000 rows"):
        check_privacy(dataclasses.replace(plan, strategy=hostile, noise_std=1.0))


def test_designs_that_hold_too_few_records_are_refused() -> None:
    """600^3 cells with coefficients up to 2^20: an answer may count a record 2^47 times."""
    domain = fp.Domain({name: fp.Integers(0, 599) for name in "abc"} | {"d": ["1", "2", "3"]})
    asked = dict.fromkeys("abc", "identity") | {"d": [[2.0**20 - 1, 1.0, 3.0]]}
    workload = fp.Workload(domain, [fp.queries(asked, std=2.0**20)])
    with pytest.raises(fp.DesignError, match="no room for 500,000,000 records"):
        fp.design(workload)


def arrays_in(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Every array that can be reached, in fields, caches, containers, and as a base of a view."""
    if id(value) in seen or isinstance(value, (str, bytes, int, float, type(None))):
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield path, value
        yield from arrays_in(value.base, f"{path}.base", seen)
        return
    inside: list[tuple[Any, Any]] = []
    if isinstance(value, (tuple, list, set, frozenset)):
        inside = list(enumerate(value))
    elif hasattr(value, "keys") and hasattr(value, "__getitem__") and not hasattr(value, "domain"):
        inside = [(key, value[key]) for key in value.keys()]  # noqa: SIM118
    elif hasattr(value, "__dict__") and (
        type(value).__module__.startswith("fitplug") or issparse(value)
    ):
        inside = list(vars(value).items())
    for key, held in inside:
        yield from arrays_in(held, f"{path}.{key}", seen)


def test_no_array_of_a_plan_can_be_written_to(plan: fp.Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.npz")
    unused = fp.Plan.load(tmp_path / "plan.npz")
    sent = pickle.loads(pickle.dumps(unused))
    for each in (plan, unused, sent, copy.deepcopy(sent)):
        # Whatever is computed and kept on the way is looked at too.
        each.verify()
        says(each), each.summary(), each.unused_budget(), each.tiers, each.targets, each.digest
        found = dict(arrays_in(each, "plan", set()))
        assert len(found) > 15
        assert [path for path, array in found.items() if array.flags.writeable] == []
        for path, array in found.items():
            if array.base is not None:
                with pytest.raises(ValueError, match="WRITEABLE"):
                    array.setflags(write=True)
                assert not array.flags.writeable, path


def test_what_a_user_gave_is_not_what_the_plan_holds() -> None:
    W, variance = np.tri(4), np.full(4, 2.0)
    plan = fp.design(fp.Workload.from_matrix(W, variance=variance))
    rho, digest = plan.rho, plan.digest
    W[:] = 0
    variance[:] = 1e9
    assert plan.workload.matrix().any()
    assert plan.workload.targets().max() == 2.0
    plan.verify()
    assert (plan.rho, dataclasses.replace(plan).digest) == (rho, digest)


def test_answers_and_costs_cannot_be_written_to(plan: fp.Plan) -> None:
    answers = plan.strategy.answer_exactly(counts(plan))
    release = fp.Release(plan=plan, answers=answers, rho=plan.rho)
    for array in (release.answers, *release.variances.values()):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
