"""Every field of a plan file is edited in turn, with the digest that then fits.

Either the file is refused, or all that the plan claims is true: it is another honest plan. What is
refused is refused by the checker in tools/ too, which shares no code with ours.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
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
from fitplug.domain import get_shape
from fitplug.families import analysis
from fitplug.families.base import tree_shape
from fitplug.families.base.mechanism import FEWEST_RECORDS
from fitplug.families.blocks.shape import pairs
from fitplug.families.blocks.shape.matrices import MatrixStructure, PersonStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.chain.shape.chains import ChainPersonStructure, ChainStructure
from fitplug.families.chain.shape.pairs import ChainPairStructure
from fitplug.families.product.shape.products import (
    ProductPairStructure,
    ProductPersonStructure,
    ProductStructure,
)
from fitplug.families.siblings.shape import SiblingStructure
from fitplug.families.siblings.strategy.siblings import SiblingStrategy
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.families.tree.strategy.blocks import TreeIntegers
from fitplug.files import compute_digest, write_with_digest
from fitplug.plan.plan_file import describe_strategy
from fitplug.plan.verification import check_privacy
from fitplug.testing.families import make_workloads
from fitplug.testing.plans import check_plan, find_least_objective
from fitplug.workload import allows_any_rows
from tests.helpers.chains import ask_chain
from tests.helpers.person_trees import build_months, design_person_tree
from tests.helpers.plan_checker import find_code
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
    "pairs": lambda: fp.design(bands_by_region(), unit=fp.ReplaceOne()),
    "moves": lambda: fp.design(symmetric_workload(), unit=fp.ReplaceOne(within=("b",))),
    "persons": lambda: fp.design(bands_by_region(), unit=fp.AddRemove(records=2, once_per="x")),
    "product, with a tree": lambda: fp.design(geography()),
    "product, pairs": lambda: fp.design(bands_by_region(), unit=fp.ReplaceOne(), tolerance=0.05),
    "product, tree variants": lambda: fp.design(places_by_jobs(), tolerance=0.05),
    "product, pairs, tree variants": lambda: fp.design(
        places_by_jobs(), unit=fp.ReplaceOne(), tolerance=0.05
    ),
    "siblings": lambda: fp.design(homes_by_workplaces(), tolerance=1e-2),
    "tree": lambda: design_tree(few_people_by_place(), tolerance=1e-2),
    "tree, pairs": lambda: fp.design(
        few_people_by_place(), unit=fp.ReplaceOne(within=("age",)), tolerance=1e-2
    ),
    "tree, parted pairs": lambda: fp.design(
        few_people_by_place(), unit=fp.ReplaceOne(), tolerance=1e-2
    ),
    "tree, persons": lambda: design_person_tree(
        build_months((2, 1), months=2), fp.AddRemove(records=2, once_per="month")
    ),
    "chain, persons": lambda: design_periods("chain"),
    "product, persons": lambda: design_periods("periods"),
    "chain": lambda: fp.design(
        ask_chain(
            6,
            fp.queries({"s": "identity", "x": "prefix"}, variance=100.0),
            fp.total(variance=20.0),
            s=["a", "b"],
        )
    ),
    "chain, pairs": lambda: fp.design(
        ask_chain(
            6,
            fp.queries({"s": "identity", "x": "prefix"}, variance=100.0),
            fp.queries({"s": "identity"}, variance=20.0),
            s=["a", "b"],
        ),
        unit=fp.ReplaceOne(),
    ),
}
LIMITS = {
    "siblings": ((analysis, "MOST_CELLS", 8),),
    "product, with a tree": (
        (analysis, "MOST_CELLS", 1),
        (analysis, "MOST_DENSE", 0),
        (tree_shape, "LEAST_TREE", 1),
    ),
    "product, pairs": ((analysis, "MOST_CELLS", 1), (pairs, "MOST_PAIR_CELLS", 1)),
    "tree, pairs": (
        (analysis, "MOST_CELLS", 1),
        (pairs, "MOST_PAIR_CELLS", 1),
        (tree_shape, "LEAST_TREE", 1),
    ),
    "chain": ((analysis, "LEAST_CHAIN", 1),),
    "chain, pairs": ((pairs, "MOST_PAIR_CELLS", 1),),
    "chain, persons": ((analysis, "MOST_CELLS", 1),),
    "product, persons": ((analysis, "MOST_CELLS", 1),),
}
LIMITS["tree, parted pairs"] = LIMITS["tree, pairs"]
LIMITS["product, tree variants"] = LIMITS["product, pairs, tree variants"] = (
    *LIMITS["tree, pairs"],
    (analysis, "MOST_AGAIN", 1),
    (analysis, "MOST_SIBLING_WORK", 1),
    (analysis, "MOST_TREE_WORK", 1),
)
"""Limits that are lowered, so that small workloads have the structures of large ones."""

STRUCTURES = {
    "dense": MatrixStructure,
    "symmetric": MatrixStructure,
    "total error": MatrixStructure,
    "budgets": MatrixStructure,
    "pairs": PairStructure,
    "moves": MoveStructure,
    "persons": PersonStructure,
    "product, with a tree": ProductStructure,
    "product, pairs": ProductPairStructure,
    "product, tree variants": ProductStructure,
    "product, pairs, tree variants": ProductPairStructure,
    "siblings": SiblingStructure,
    "tree": TreeStructure,
    "tree, pairs": TreePairStructure,
    "tree, parted pairs": TreePairStructure,
    "tree, persons": PersonTreeStructure,
    "chain": ChainStructure,
    "chain, pairs": ChainPairStructure,
    "chain, persons": ChainPersonStructure,
    "product, persons": ProductPersonStructure,
}


def design_periods(name: str) -> fp.Plan:
    """Design for persons with up to two rows, in different periods."""
    return fp.design(make_workloads()[name], unit=fp.AddRemove(records=2, once_per="M"))


def bands_by_region() -> fp.Workload:
    """Prefixes by region, and bands that no region has."""
    domain = fp.Domain({"x": fp.Integers(1, 3), "y": ["a", "b", "c", "d"]})
    groups = [
        fp.queries({"x": "prefix", "y": "identity"}, std=3.0),
        fp.queries({"x": "identity"}, variance=[2.0, 3.0, 4.0]),
        fp.total(std=2.0),
    ]
    return fp.Workload(domain, groups)


CHECKED = (MatrixStructure, PairStructure, MoveStructure)
"""The structures that tools/check_plan.py covers."""

WORDS = ("domain", "groups", "value_labels")
"""What a plan file has of the workload, besides its targets."""


QUICK_CELLS = 16
"""The most cells for which another solver finds the optimum within a second."""


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


def homes_by_workplaces() -> fp.Workload:
    """Two states of two counties and of one, by sectors of one industry and of two."""
    home = fp.Hierarchy(["state", "county"], [("a", "a1"), ("a", "a2"), ("b", "b1")])
    work = fp.Hierarchy(["sector", "industry"], [("f", "f1"), ("g", "g1"), ("g", "g2")])
    groups = [
        fp.queries({"home": "county", "work": "industry"}, variance=[[2.0], [2.0], [3.0]]),
        fp.queries({"work": "sector"}, variance=1.0),
    ]
    return fp.Workload(fp.Domain({"home": home, "work": work}), groups)


def places_by_jobs() -> fp.Workload:
    """Three states of one and two counties, which blocks measure with different weights."""
    leaves = [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1")]
    place = fp.Hierarchy(["state", "county"], leaves)
    job = fp.Hierarchy(["sector", "industry"], [("f", "f1"), ("f", "f2"), ("g", "g1")])
    groups = [
        fp.queries({"place": "county", "job": "industry"}, variance=4.0),
        fp.queries({"place": "state", "job": "sector"}, variance=2.0),
        fp.queries({"place": "county"}, variance=2.0),
        fp.total(variance=1.0),
    ]
    return fp.Workload(fp.Domain({"place": place, "job": job}), groups)


LONG = ("total error", "budgets", "tree, pairs")
"""Plans whose structure has another plan here, which CI tests too."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(p, marks=[pytest.mark.long] * (p in LONG)) for p in PLANS],
)
def plan(request: pytest.FixtureRequest) -> Iterator[fp.Plan]:
    with pytest.MonkeyPatch.context() as patch:
        for module, limit, value in LIMITS.get(request.param, ()):
            patch.setattr(module, limit, value)
        plan = PLANS[request.param]()
        assert type(plan.strategy.structure) is STRUCTURES[request.param]
        yield plan


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


def edit_header(header: Any, arrays: Any, places: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """What is edited of some values of a header, header and arrays."""
    for path, value in places:
        for new in other_values(value):
            other = copy.deepcopy(header)
            inside = other
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = new
            yield f"{path} = {new!r}", other, arrays


def edit_words(header: Any, arrays: Any) -> Iterator[tuple[str, Any, Any]]:
    """What is edited of the workload's description, header and arrays."""
    yield from edit_header(header, arrays, [(p, v) for p, v in leaves(header) if p[0] in WORDS])


def edit_numbers(header: Any, arrays: Any) -> Iterator[tuple[str, Any, Any]]:
    """What is edited of all else, header and arrays."""
    yield from edit_header(header, arrays, [(p, v) for p, v in leaves(header) if p[0] not in WORDS])
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
    x = rng.integers(0, 50, get_shape(plan.domain, names))

    def counted(wanted: tuple[str, ...]) -> npt.NDArray[np.int64]:
        out = tuple(i for i, name in enumerate(names) if name not in wanted)
        left = [name for name in names if name in wanted]
        return np.asarray(x.sum(axis=out)).transpose([left.index(n) for n in wanted])

    return counted


def collect_claims(plan: fp.Plan) -> npt.NDArray[np.float64]:
    """What a plan states of its cost, of its answers and of the optimum."""
    # Sorted, as the axes of a group and the attributes may be in another order.
    parts = [np.sort(v.ravel()) for by in (plan.variances, plan.targets) for v in by.values()]
    single = [plan.rho, plan.noise_std, plan.strategy.max_records, plan.lower_bound, plan.scale]
    return np.concatenate([*parts, np.sort(plan.profile().ravel()), single])


def identify(plan: fp.Plan) -> tuple[Any, ...]:
    """What decides whether the claims of a plan are true."""
    workload = plan.workload
    strategy = compute_digest(*describe_strategy(plan.strategy))
    problem = workload.matrix().tobytes(), workload.targets().tobytes(), workload.shape
    return strategy, *problem, plan.noise_std, plan.scale


@pytest.mark.parametrize(
    ("edit", "step"),
    [
        pytest.param(edit_numbers, 7, id="some numbers", marks=pytest.mark.slow),
        pytest.param(edit_numbers, 1, id="numbers", marks=pytest.mark.long),
        pytest.param(edit_words, 1, id="words", marks=pytest.mark.long),
    ],
)
def test_what_is_edited_is_refused_or_true(
    plan: fp.Plan,
    edit: Callable[[Any, Any], Iterator[tuple[str, Any, Any]]],
    step: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)  # nothing here outlives the process
    header, arrays = describe(plan)
    header = json.loads(json.dumps(header))
    path = tmp_path / "plan.npz"
    write_with_digest(path, header, arrays)
    assert fp.Plan.load(path).digest == plan.digest
    assert find_code(path) == (0 if type(plan.strategy.structure) in CHECKED else 3)
    check_plan(plan)
    # What bounds the cost of all mechanisms from below does so whatever the integers are.
    is_quick = plan.workload.cell_count <= QUICK_CELLS
    least = find_least_objective(plan) if is_quick or edit is edit_words else np.inf
    expected, shown = collect_claims(plan), {identify(plan)}
    refused = kept = 0
    for what, edited, changed in itertools.islice(edit(header, arrays), 0, None, step):
        same_content = compute_digest(edited, changed) == plan.digest
        write_with_digest(path, edited, changed)
        try:
            loaded = fp.Plan.load(path)
            loaded.verify()
        except fp.PlanError:
            refused += 1
            assert find_code(path) in (1, 3), what
            assert not same_content, f"refused, though nothing was changed: {what}"
            continue
        if same_content:
            continue
        kept += 1
        assert loaded.digest != plan.digest, what
        # Each claim is in the file, so that an edit of one field leaves the others as they were.
        # Floats may be on the safe side by as little as another machine rounds otherwise, and a
        # cost that is an upper bound by as little too.
        np.testing.assert_allclose(collect_claims(loaded), expected, rtol=1.1e-8, err_msg=what)
        assert loaded.rho_exact == plan.rho_exact or loaded.overstatement, what
        assert loaded.lower_bound <= least * (1 + 1e-5), what
        if (claims := identify(loaded)) not in shown:
            check_plan(loaded)
            shown.add(claims)
    assert refused > 2 * kept > 0


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("sensitivity_squared", lambda square: square * 99 // 100),
        ("unit_variances", lambda variances: variances * 0.99),
        ("column_squares", lambda squares: squares * 0.99),
        ("max_records", lambda records: records * 2**6),
    ],
)
def test_false_claims_are_recognised(plan: fp.Plan, field: str, change: Any) -> None:
    """The test above would see what a verification that believes the file lets through."""
    strategy = dataclasses.replace(plan.strategy, **{field: change(getattr(plan.strategy, field))})
    with pytest.raises(AssertionError):
        check_plan(dataclasses.replace(plan, strategy=strategy))


def test_fewer_records_claimed_are_refused_when_loading(plan: fp.Plan, tmp_path: Path) -> None:
    header, arrays = describe(plan)
    path = tmp_path / "plan.npz"
    for records in (0, 1, plan.strategy.max_records - 1, plan.strategy.max_records + 1, 10**30):
        write_with_digest(path, header | {"max_records": str(records)}, arrays)
        with pytest.raises(fp.PlanError, match="number of rows that the plan can count"):
            fp.Plan.load(path)


def test_plans_that_hold_too_few_records_are_refused(plan: fp.Plan) -> None:
    """All claims of such a plan are true: it would clamp the answers of small populations."""
    strategy = plan.strategy
    times = 2 ** (plan.strategy.max_records.bit_length() - FEWEST_RECORDS.bit_length() + 2)
    if isinstance(strategy, TreeIntegers):
        blocks = [
            dataclasses.replace(
                t,
                root=t.root * times,
                steps=tuple(dataclasses.replace(s, dense=s.dense * times) for s in t.steps),
            )
            for t in strategy.tree_blocks
        ]
        strategy = dataclasses.replace(strategy, tree_blocks=tuple(blocks))
    else:
        # Where attributes have grades, M is 1 and the multiples are what answers are multiplied by.
        is_unfolded = isinstance(strategy, SiblingStrategy)
        measured = strategy.unfolded if is_unfolded else strategy
        sets = [
            dataclasses.replace(f, multiples=tuple(m * times for m in f.multiples))
            if f.multiples
            else dataclasses.replace(f, M=f.M * times)
            for f in measured.block_sets
        ]
        measured = dataclasses.replace(measured, block_sets=tuple(sets))
        strategy = dataclasses.replace(strategy, unfolded=measured) if is_unfolded else measured
    hostile = dataclasses.replace(
        strategy,
        **strategy.compute_cost()._asdict(),
    )
    assert 0 < hostile.max_records < FEWEST_RECORDS
    with pytest.raises(fp.PlanError, match="may overflow with 500,000,000 rows"):
        check_privacy(dataclasses.replace(plan, strategy=hostile, noise_std=1.0))


def test_designs_that_hold_too_few_records_are_refused() -> None:
    """600^3 cells with coefficients up to 2^20: an answer may count a record 2^47 times."""
    domain = fp.Domain({name: fp.Integers(0, 599) for name in "abc"} | {"d": ["1", "2", "3"]})
    asked = dict.fromkeys("abc", "identity") | {"d": [[2.0**20 - 1, 1.0, 3.0]]}
    workload = fp.Workload(domain, [fp.queries(asked, std=2.0**20)])
    with pytest.raises(fp.DesignError, match="with 500,000,000 rows, answers would exceed"):
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
        each.strategy.answer_exactly(counts(each))
        each.summary(), each.tiers, each.targets, each.digest
        if allows_any_rows(each.unit):
            each.unused_budget()
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
