"""The pinched bound: against nuclear norms in extended precision, and against hostile weights."""

import functools
import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fitplug import errors
from fitplug.certify import certify_dense_bound
from fitplug.domain.domain import Domain
from fitplug.domain.numbers import Integers
from fitplug.families.analysis import analyse_structure as structure
from fitplug.families.product.certificate import (
    factor_pinching as pinch,
    gram_matrices as grams_module,
    product_bound as pinched,
)
from fitplug.families.product.certificate.gram_matrices import GramTerms, place_terms
from fitplug.families.product.certificate.product_duals import Split, plan_splits
from fitplug.families.product.design import bound_ascent as ascent
from fitplug.families.product.design.cell_ascent import ascend_cells, couple_totals
from fitplug.families.product.design.products import find_member
from fitplug.numeric.rounding import gamma
from fitplug.workload.query_group import queries, total
from fitplug.workload.workload import Workload
from tests.helpers.extended_precision import LONG, singular_values

EXACT = 1 + 64 * np.finfo(LONG).eps  # what the references here may be off by


def laid_out(workload):
    return structure(workload, family=True).batched


def workload(sizes, groups):
    domain = Domain({f"a{i}": Integers(0, n - 1) for i, n in enumerate(sizes)})
    return Workload(domain, groups)


def workloads():
    rng = np.random.default_rng(20261203)
    varied = rng.uniform(1, 5, (1, 5))
    apart = rng.uniform(1, 5, (3, 6)) * 10.0 ** rng.integers(-9, 9, (3, 6))
    rows = rng.integers(-2, 3, (4, 3)).astype(float)
    return {
        "prefixes": workload([3, 4], [
            queries({"a1": "prefix"}, variance=2.0),
            total(variance=1.0),
            queries({"a0": "prefix", "a1": "prefix"}, variance=5.0),
            queries({"a0": "prefix"}, variance=1.0),
        ]),
        "kinds": workload([4, 3, 2], [
            total(variance=3.0),
            queries({"a0": "prefix", "a1": "identity"}, variance=2.0),
            queries({"a0": "all_ranges"}, variance=1.0),
            queries({"a1": "identity", "a2": rows[:, :2]}, variance=1.0),
        ]),
        "targets along one": workload([5, 3], [
            total(variance=2.0),
            queries({"a1": "identity", "a0": "prefix"}, variance=varied),
            queries({"a0": "prefix"}, variance=1.0),
        ]),
        "targets apart": workload([3, 3], [
            queries({"a0": "prefix", "a1": "all_ranges"}, variance=apart),
            queries({"a1": rows}, variance=1.0),
        ]),
        "one factor in all groups": workload([4, 3], [
            queries({"a0": "prefix", "a1": "prefix"}, variance=1.0),
            queries({"a0": "prefix"}, variance=4.0),
        ]),
        "one group": workload([4, 3, 2], [
            queries({"a0": "prefix", "a1": "all_ranges", "a2": "identity"}, variance=3.0)
        ]),
        "one cell": workload([1, 4, 1], [
            queries({"a0": "prefix", "a1": "prefix"}, variance=1.0),
            queries({"a0": "identity", "a2": "identity"}, variance=1.0),
            total(variance=1e-3),
        ]),
        "symmetric": workload([3, 2, 2], [
            queries({"a0": "identity", "a1": "identity"}, variance=1.0),
            queries({"a1": "identity", "a2": "identity"}, variance=2.0),
        ]),
        "the total": workload([3], [total(variance=7.0)]),
        "a row of zeros": workload([3, 2], [
            queries({"a0": np.diag([0.0, 1.0, 2.0]), "a1": "prefix"}, variance=1.0),
            queries({"a0": np.zeros((1, 3))}, variance=1.0),
            queries({"a1": "prefix"}, variance=1.0),
        ]),
    }  # fmt: skip


STRUCTURES = {name: structure(one, family=True) for name, one in workloads().items()}
LAYOUTS = {name: one.batched for name, one in STRUCTURES.items()}
ALL = sorted(LAYOUTS)


def most(layout):
    """The t of whole frames."""
    return max(layout.widths, default=1)


def duals(layout, draw, t=1, tilt=1.0, rests=1):
    """Dual weights, each array of a size drawn by draw(size)."""
    return pinched.ProductDuals(
        tuple(
            draw(1 if symmetric else n)
            for n, symmetric in zip(layout.sizes, layout.symmetric, strict=True)
        ),
        tuple(draw(one.count) for one in layout.factors),
        draw(len(layout.workload.groups)),
        t,
        rests,
        tilt,
    )


def random(layout, seed, t, tilt=1.0, rests=1):
    rng = np.random.default_rng(seed)
    return duals(layout, lambda size: rng.exponential(size=size), t, tilt, rests)


def drawn(rng, orders, zeros):
    """draw(size) of numbers that spread over orders of magnitude, some of them zero."""

    def draw(size):
        weights = 10.0 ** rng.uniform(-orders, orders, size)
        weights[rng.uniform(size=size) < zeros] = 0.0
        weights[rng.integers(size)] = 10.0 ** rng.uniform(-orders, orders)
        return weights

    return draw


def product_matrix(layout, weights):
    """X over sqrt(sum p), and sum q, in extended precision."""
    rows, mass = [], LONG(0)
    for batch in layout.batches:
        for group, attributes, factors, c in zip(
            batch.groups, batch.attributes, batch.factors, batch.targets, strict=True
        ):
            own = dict(zip(attributes, factors, strict=True))
            X, cost = np.sqrt(LONG(weights.w[group])) * np.ones((1, 1), LONG), c.astype(LONG)
            for a, n in enumerate(layout.sizes):
                p = np.full(n, 1 / LONG(n)) if layout.symmetric[a] else weights.p[a].astype(LONG)
                root = np.sqrt(p / p.sum())
                if a not in own:
                    X = np.kron(X, root)
                    continue
                y, W = weights.y[own[a]].astype(LONG), layout.factors[own[a]].rows
                if layout.symmetric[a]:
                    y, W = np.full(n, y[0] / n), np.eye(n)
                X = np.kron(X, np.sqrt(y)[:, None] * W * root)
                cost = np.tensordot(y if cost.shape[0] > 1 else y.sum()[None], cost, (0, 0))
            rows.append(X)
            mass += weights.w[group] * cost
    return np.concatenate(rows), mass


def rounded(layout, weights):
    """The weights that are evaluated: p and y the squares of floats, relative to the largest, and w
    in the range of floats once X is scaled.
    """
    here = pinched.scale_duals(layout, weights)
    p, y = (
        tuple(np.sqrt(part / part.max()).astype(LONG) ** 2 for part in parts)
        for parts in (weights.p, weights.y)
    )
    w = here.w.astype(LONG)
    for batch in layout.batches:
        for own in batch.factors.T:
            shifts = [here.pinches[f].shift if f in here.pinches else 0 for f in own]
            w[batch.groups] = np.ldexp(w[batch.groups], -2 * np.array(shifts))
    return replace(weights, p=p, y=y, w=w)


def exact(layout, weights):
    X, mass = product_matrix(layout, weights)
    return singular_values(X).sum() / np.sqrt(mass)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("seed", range(6))
def test_whole_frames_are_exact_and_never_above(name, seed):
    layout = LAYOUTS[name]
    weights = random(layout, seed, most(layout), tilt=[0.06, 0.3, 1.0][seed % 3])
    norm = exact(layout, weights)
    assert norm * (1 - 1e-9) <= pinched.lower_product_cost(layout, weights) <= norm * EXACT


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("mean", [1e-3, 0.5, 3.0, 30.0])
@pytest.mark.parametrize("t", [1, 2, 50])
def test_the_total_may_have_any_variance(name, mean, t):
    layout = LAYOUTS[name]
    weights = random(layout, 11, min(t, most(layout)))
    X, mass = product_matrix(layout, weights)
    u = np.ones(1, dtype=LONG)
    for p, symmetric, n in zip(weights.p, layout.symmetric, layout.sizes, strict=True):
        u = np.kron(u, np.full(n, n**-0.5) if symmetric else np.sqrt(p / p.sum()))
    changed = X + (np.sqrt(LONG(mean)) - 1) * np.outer(X @ u, u)
    norm = singular_values(changed).sum() / np.sqrt(mass)
    found = pinched.lower_product_cost(layout, weights, mean)
    assert found <= norm * (1 + 1e-9)
    if t == 50:
        assert found >= norm * (1 - 1e-6)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("tilt", [0.1, 1.0])
def test_pinched_norms_are_below(name, tilt):
    layout = LAYOUTS[name]
    weights = random(layout, 7, 1, tilt)
    norm = exact(layout, weights)
    for t, rests in itertools.product(range(1, most(layout) + 1), (1, 2, 4096)):
        bound = pinched.lower_product_cost(layout, replace(weights, t=t, rests=rests))
        assert norm * 0.7 <= bound <= norm * EXACT
    assert bound >= norm * (1 - 1e-9)


@settings(max_examples=400)
@given(
    name=st.sampled_from(ALL),
    seed=st.integers(0, 2**32),
    orders=st.sampled_from([0.5, 3, 12, 40, 150, 300]),
    zeros=st.sampled_from([0.0, 0.5, 1.0]),
    t=st.integers(1, 5),
    tilt=st.sampled_from([0.06, 1.0]),
    rests=st.integers(1, 4),
)
@pytest.mark.slow
def test_no_weights_bring_it_above(name, seed, orders, zeros, t, tilt, rests):
    layout = LAYOUTS[name]
    draw = drawn(np.random.default_rng(seed), orders, zeros)
    weights = duals(layout, draw, min(t, most(layout)), tilt, rests)
    norm = exact(layout, rounded(layout, weights))
    bound = pinched.lower_product_cost(layout, weights)
    assert 0 <= bound <= norm * EXACT
    if zeros == 1.0 and 1e-300 < norm < 1e300:  # one cell, one row each: numbers
        assert bound >= norm * (1 - 1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
def test_scales_cancel(scale):
    layout = LAYOUTS["kinds"]
    weights = random(layout, 1, 4)
    bound = pinched.lower_product_cost(layout, weights)
    p = tuple(scale * p for p in weights.p)
    y = tuple(
        scale * y if one.attribute == 2 else y
        for y, one in zip(weights.y, layout.factors, strict=True)
    )
    for scaled in (replace(weights, p=p), replace(weights, w=weights.w * scale)):
        assert pinched.lower_product_cost(layout, scaled) == pytest.approx(bound, rel=1e-11)
    other = replace(weights, y=y)
    norm = exact(layout, other)
    assert norm * (1 - 1e-6) <= pinched.lower_product_cost(layout, other) <= norm * EXACT


@pytest.mark.parametrize("scale", [1e-59, 1e-30, 1e30, 1e59])
def test_scales_of_rows_and_targets(scale):
    groups = [
        queries({"a0": np.tri(3), "a1": "prefix"}, variance=scale),
        queries({"a1": "prefix"}, variance=1 / scale),
    ]
    plain = laid_out(workload([3, 2], groups))
    # Larger and smaller coefficients than any workload may have.
    factors = (
        replace(one, rows=one.rows * scale**3) if one.attribute == 0 else one
        for one in plain.factors
    )
    layout = replace(plain, factors=tuple(factors))
    weights = random(layout, 3, 3)
    norm = exact(layout, weights)
    assert norm * (1 - 1e-6) <= pinched.lower_product_cost(layout, weights) <= norm * EXACT


def test_it_is_the_certificate_of_the_dense_weights():
    layout = LAYOUTS["prefixes"]
    weights = random(layout, 5, 4)
    W, c = layout.workload.matrix(), layout.workload.targets()
    own = {one.attribute: y for y, one in zip(weights.y, layout.factors, strict=True)}
    y = [np.ones(1), own[0], own[1], np.outer(own[0], own[1]).ravel()]
    parts = [y[2], y[0], y[3], y[1]]
    q = np.concatenate([w * part for w, part in zip(weights.w, parts, strict=True)]) * c
    dense = certify_dense_bound(W, c, np.outer(*weights.p).ravel(), q)
    assert pinched.lower_product_cost(layout, weights) == pytest.approx(dense, rel=1e-9)


def test_a_group_without_weight_does_not_count():
    layout = LAYOUTS["kinds"]
    weights = random(layout, 2, 1)
    alone = replace(weights, w=np.array([0.0, 2.0, 0.0, 0.0]))
    # One Kronecker group: no pinching at all.
    norm = exact(layout, alone)
    assert norm * (1 - 1e-12) <= pinched.lower_product_cost(layout, alone) <= norm * EXACT


@pytest.mark.parametrize("name", ["one group", "one factor in all groups", "symmetric"])
def test_what_all_groups_share_multiplies_out(name):
    layout = LAYOUTS[name]
    weights = random(layout, 4, 3 if name.startswith("one factor") else 1, 0.1)
    assert 0 in [split.columns for split in plan_splits(layout, weights)]
    norm = exact(layout, weights)
    assert norm * (1 - 1e-11) <= pinched.lower_product_cost(layout, weights) <= norm * EXACT


OFF = 1e-6
"""Values, left and right vectors that are off by these; None: single precision."""
WRONG = [
    (-2 * OFF, 0, 0),
    (2 * OFF, 0, 0),
    (0, OFF, 0),
    (0, -OFF, OFF),
    (0, 0, OFF),
    (2 * OFF, -OFF, 0),
    None,
]


def spoil(monkeypatch, name, factors):
    """Let np.linalg.svd or eigh be wrong."""
    right = getattr(np.linalg, name)

    def wrong(X, **kwargs):
        if factors is None:
            return tuple(part.astype(float) for part in right(X.astype(np.float32), **kwargs))
        values, left, other = factors
        own = (left, values, other) if name == "svd" else (values, left)
        return tuple(part * (1 + off) for part, off in zip(right(X, **kwargs), own, strict=True))

    monkeypatch.setattr(f"numpy.linalg.{name}", wrong)


@pytest.mark.parametrize("factors", WRONG, ids=str)
@pytest.mark.parametrize("function", ["svd", "eigh"])
@pytest.mark.parametrize("name", ALL)
def test_it_trusts_no_singular_values(monkeypatch, name, function, factors):
    layout = LAYOUTS[name]
    weights = random(layout, 9, most(layout), 0.3)
    norm = exact(layout, weights)
    spoil(monkeypatch, function, factors)
    assert norm * (1 - 1e-2) <= pinched.lower_product_cost(layout, weights) <= norm * EXACT


def graded(rng, r, n, spread):
    """(r, n) with singular values over `spread` orders of magnitude, some of them alike."""
    s = 10.0 ** -np.sort(rng.uniform(0, spread, min(r, n)))
    s[1::3] = s[::3][: len(s[1::3])]
    U, _ = np.linalg.qr(rng.normal(size=(r, min(r, n))))
    V, _ = np.linalg.qr(rng.normal(size=(n, min(r, n))))
    X = (U * s) @ V.T
    return X / (2 * math.sqrt(min(r, n)) * np.linalg.norm(X))


def orthonormal(C):
    """Gram-Schmidt, in extended precision."""
    Q = np.zeros(C.shape, LONG)
    for j in range(C.shape[1]):
        v = C[:, j].astype(LONG)
        for _ in range(2):
            v = v - Q[:, :j] @ (Q[:, :j].T @ v)
        Q[:, j] = v / np.sqrt(v @ v)
    return Q


@pytest.mark.parametrize("factors", [(0, 0, 0), *WRONG], ids=str)
def test_a_pinch_is_rounded_down_and_knows_its_error(monkeypatch, factors):
    spoil(monkeypatch, "svd", factors)
    for seed, spread in itertools.product(range(6), [0, 1, 8, 15]):
        check_pinch(seed, spread, factors == (0, 0, 0))


def check_pinch(seed, spread, right):
    rng = np.random.default_rng(seed)
    r, n = rng.integers(2, 9, 2)
    t = int(rng.integers(1, n + 1)) if seed else 0
    X = graded(rng, r, n, spread)
    e = rng.exponential(size=n)
    e /= np.linalg.norm(e)
    frame = pinch.choose_frame(X, e, 0.3, t)
    parts = pinch.split_rest(frame, e, ())
    found = pinch.pinch_factor(X, frame, 0.3, parts)
    assert found.frame.shape == (n, t)
    R, C = orthonormal(found.rows), orthonormal(found.frame)
    rest = X - R @ (R.T @ X)
    rest -= rest @ C @ C.T
    rho = singular_values(rest).sum()
    assert rho - (1e-11 if right else 1e-3) <= found.rests.item() <= rho * EXACT
    off = R.T @ X @ C - found.paired
    assert (singular_values(off).sum() if off.size else 0) <= found.error
    assert found.error <= (1e-11 if right else 1e-3)


@pytest.mark.parametrize("factors", [(0, 0, 0), *WRONG], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_several_rests_are_rounded_down(monkeypatch, seed, factors):
    rng = np.random.default_rng(seed)
    r, n, t = rng.integers(3, 9), 8, int(rng.integers(1, 4))
    X, e = graded(rng, r, n, 1), np.full(n, 8**-0.5)
    frame = pinch.choose_frame(X, e, 0.3, t)
    spaces = (rng.normal(size=(2, n)), rng.normal(size=(5, n)), np.eye(n))
    parts = pinch.split_rest(frame, e, spaces)
    assert sum(part.shape[1] for part in parts) == n - t
    spoil(monkeypatch, "svd", factors)
    found = pinch.pinch_factor(X, frame, 0.3, parts)
    R, C = orthonormal(found.rows), orthonormal(np.concatenate([frame, *parts], axis=1))
    ends = np.cumsum([t, *(part.shape[1] for part in parts)])
    for nu, start, end in zip(found.rests, ends, ends[1:], strict=False):
        part = (X - R @ (R.T @ X)) @ C[:, start:end]
        assert 0 <= nu <= singular_values(part).sum() * EXACT
    total_ = float(found.rests.sum()) + singular_values(R.T @ X @ C[:, :t]).sum()
    assert 0.6 * singular_values(X).sum() <= total_ <= singular_values(X).sum() * EXACT


@pytest.mark.parametrize("off", [3e-4, -3e-4])
def test_rows_that_are_off_do_not_raise_the_rest(monkeypatch, off):
    rng = np.random.default_rng(2)
    X = graded(rng, 4, 9, 1)
    e = X.T @ rng.normal(size=4)
    e /= np.linalg.norm(e)
    frame, rows = pinch.choose_frame(X, e, 0.3, 1), pinch._choose_rows
    monkeypatch.setattr(pinch, "_choose_rows", lambda *args: rows(*args) * (1 + off))
    R, C = orthonormal(rows(X, frame, 0.3)), orthonormal(frame)
    assert R.shape == (4, 1)
    rest = X - R @ (R.T @ X)
    rest -= rest @ C @ C.T
    rho = singular_values(rest).sum()
    parts = pinch.split_rest(frame, e, ())
    assert rho * (1 - 1e-2) <= pinch.pinch_factor(X, frame, 0.3, parts).rests.item() <= rho


@pytest.mark.parametrize("orders", [(0, 0), (30, 0), (150, 0), (0.3, -310), (0.3, -322)])
@pytest.mark.parametrize("seed", range(4))
def test_a_scaled_factor_knows_its_error(seed, orders):
    rng = np.random.default_rng(seed)
    draw = drawn(rng, orders[0], 0.1)
    W, v, e = draw(20).reshape(5, 4) * 10.0 ** orders[1], rng.uniform(size=5), draw(4)
    e = e / e.max()
    e /= np.linalg.norm(e)
    X, error, shift = pinch.scale_factor(W, v, e)
    long = e.astype(LONG)
    meant = v.astype(LONG)[:, None] * W * (long / np.sqrt(long @ long))
    off = X - np.ldexp(meant, -shift)
    assert np.sqrt((off * off).sum()) <= error
    assert error <= 1e-14 or orders[1]
    assert singular_values(X).sum() <= 0.5


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 49, 10**6 + 3, 2**53 - 1])
def test_a_symmetric_factor_is_rounded_down(n):
    found = pinch.pinch_symmetric(n, 1)
    assert Fraction(float(found.rests[0])) <= 1 - Fraction(1, n)
    assert abs(Fraction(float(found.paired[0, 0])) - Fraction(1, n)) <= Fraction(found.error)
    assert found.error < 1e-14
    assert pinch.pinch_symmetric(n, 0).rests == 1


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("orders", [0, 20])
def test_the_sum_of_q_is_rounded_up(name, orders):
    layout = LAYOUTS[name]
    rng = np.random.default_rng(17)
    w, mass = rng.uniform(size=len(layout.workload.groups)), Fraction(0)
    roots = {f: drawn(rng, orders, 0.1)(one.count) for f, one in enumerate(layout.factors)}
    roots = {f: v / v.max() for f, v in roots.items()}
    shifts = rng.integers(-9, 9, len(roots))
    for batch in layout.batches:
        for group, factors, c in zip(batch.groups, batch.factors, batch.targets, strict=True):
            part = Fraction(1, 4) ** int(shifts[factors].sum()) * Fraction(float(w[group]))
            axes = [[Fraction(float(x)) ** 2 for x in roots[f]] for f in factors]
            axes = [y if n > 1 else [sum(y)] for y, n in zip(axes, c.shape, strict=True)]
            for y, target in zip(itertools.product(*axes), c.ravel(), strict=True):
                mass += part * math.prod(y) * Fraction(float(target))
    found, power = pinched._upper_mass(layout, w, roots, shifts)
    assert mass <= Fraction(found) * Fraction(4) ** power <= mass * (1 + Fraction(1, 10**12))
    for total_ in rng.exponential(size=100):
        value = Fraction(pinched.ScaledDuals({}, w, found, power).divide_by_mass(float(total_)))
        assert value**2 * Fraction(found) * Fraction(4) ** power <= Fraction(float(total_)) ** 2


@pytest.mark.parametrize("power", [-3000, -1030, -1024, 0, 900, 1020, 1060, 3000])
def test_nothing_is_rounded_up_at_the_ends_of_the_range(power):
    for total_ in np.random.default_rng(power + 3000).exponential(size=50):
        value = pinched.ScaledDuals({}, np.ones(1), 1.5, power).divide_by_mass(float(total_))
        assert math.isfinite(value)
        squares = Fraction(value) ** 2 * Fraction(3, 2), Fraction(float(total_)) ** 2
        assert squares[0] * Fraction(4) ** power <= squares[1]
        assert power or squares[0] >= squares[1] * (1 - Fraction(1, 10**14))


def test_the_grams_are_as_near_as_their_roundings_say():
    layout = LAYOUTS["prefixes"]
    rng = np.random.default_rng(3)
    w, splits = rng.uniform(size=4), [Split(2), Split(3)]
    places = place_terms(layout, splits, w > 0)
    paired = [rng.normal(size=(t, t)) / (4 * t) for t in (2, 3)]
    of = {f: one.attribute for f, one in enumerate(layout.factors)}
    rest = rng.uniform(size=2)
    tables = {f: np.append(paired[a].T @ paired[a], rest[a] ** 2) for f, a in of.items()}
    filled = places.fill(w, tables)
    meant = [Fraction(0)] * len(filled)
    long = [[[Fraction(float(x)) for x in row] for row in A] for A in paired]
    for groups, factors, place in places.parts:
        for group, own, at in zip(groups, factors, place, strict=True):
            axes = []
            for a in (of[f] for f in own):
                columns = list(zip(*long[a], strict=True))
                pairs = itertools.product(columns, columns)
                products = [sum(x * y for x, y in zip(i, j, strict=True)) for i, j in pairs]
                axes.append([*products, Fraction(float(rest[a])) ** 2])
            for entry, index in zip(itertools.product(*axes), at.ravel(), strict=True):
                meant[index] += Fraction(float(w[group])) * math.prod(entry)
    off = np.array([float(Fraction(x) - y) for x, y in zip(filled.tolist(), meant, strict=True)])
    assert any(stack.shape[1] == 6 for stack in places.split_by_size(filled))
    for stack, error in zip(places.split_by_size(filled), places.split_by_size(off), strict=True):
        d = np.sqrt(stack.diagonal(axis1=1, axis2=2))
        assert (np.abs(error) <= gamma(places.roundings) * d[:, :, None] * d[:, None, :]).all()


@pytest.mark.parametrize("name", ["prefixes", "kinds", "targets along one", "one cell"])
@pytest.mark.parametrize("share", [1e-6, 1e-3, 0.3])
def test_what_tables_are_off_by_is_taken_off(name, share):
    layout = LAYOUTS[name]
    weights = random(layout, 8, most(layout))
    here = pinched.scale_duals(layout, weights)
    places = place_terms(layout, plan_splits(layout, weights), weights.w > 0)
    more = {
        f: replace(
            found,
            paired=found.paired * (1 + share),
            error=float(singular_values(found.paired).sum()) * share if found.paired.size else 0.0,
        )
        for f, found in here.pinches.items()
    }
    total_ = places.lower_square_roots(
        places.fill(here.w, {f: one.table for f, one in more.items()})
    )
    below = total_ - pinched._upper_loss(layout, replace(here, pinches=more))
    norm = exact(layout, weights)
    assert here.divide_by_mass(total_) >= norm * (1 + share / 4)
    assert norm * (1 - 40 * share) <= here.divide_by_mass(max(below, 0.0)) <= norm * EXACT


@pytest.mark.parametrize("spread", [0, 3, 6, 9])
@pytest.mark.parametrize("seed", range(10))
def test_roots_are_rounded_down(seed, spread):
    rng = np.random.default_rng(seed)
    size, number = [(1, 5), (2, 3), (5, 2), (12, 1), (25, 1)][seed % 5]
    roots = [graded(rng, size + 2, size, spread) for _ in range(number)]
    buffer = np.stack([Y.T @ Y for Y in roots]).ravel()
    norm = sum(singular_values(Y).sum() for Y in roots)
    found = GramTerms((), ((size, number),), size + 2).lower_square_roots(buffer)
    assert norm * (1 - 1e-6) <= found <= norm * EXACT
    if spread < 6:
        assert found >= norm * (1 - 1e-9)


def test_chunks_leave_the_roots_as_they_are():
    rng = np.random.default_rng(1)
    Y = graded(rng, 150, 150, 2)
    found = GramTerms((), ((150, 1),), 150).lower_square_roots((Y.T @ Y).ravel())
    assert found == pytest.approx(np.linalg.svd(Y, compute_uv=False).sum(), rel=1e-9)


@pytest.mark.parametrize("t", [0, 1, 2, 3])
def test_a_loose_rest_counts_as_the_whole_does(t):
    rng = np.random.default_rng(t)
    block, loose = graded(rng, 4, 3, 1) / 2, rng.uniform(0.01, 0.05, 5)
    X = np.zeros((9, 8))
    X[:4, :3], X[4:, 3:] = block, np.diag(loose)
    e = rng.exponential(size=3)
    e /= np.linalg.norm(e)
    frame = pinch.choose_frame(block, e, 0.3, t)
    parts = pinch.split_rest(frame, e, ())
    below = [np.concatenate([C, np.zeros((5, C.shape[1]))]) for C in (frame, *parts)]
    whole = pinch.pinch_factor(X, below[0], 0.3, [below[1], np.eye(8)[:, 3:]])
    part = pinch.pinch_factor(
        np.concatenate([block, np.zeros((5, 3))]),
        frame,
        0.3,
        parts,
        loose=np.concatenate([np.zeros(4), loose])[:, None],
    )
    assert part.rests == pytest.approx(whole.rests, rel=1e-11)
    np.testing.assert_allclose(part.table, whole.table, rtol=1e-10, atol=1e-15)
    slope = rng.uniform(size=t * t + 2)
    np.testing.assert_allclose(
        part.compute_parts(slope)[0], whole.compute_parts(slope)[0], rtol=1e-10, atol=1e-15
    )


def test_a_bound_with_a_loose_rest_is_that_of_the_whole():
    W = np.zeros((6, 6))
    W[:3, :3], W[3:, 3:] = np.tri(3), np.diag([1.0, 2.0, 3.0])
    groups = [
        queries({"a0": W, "a1": "prefix"}, variance=1.0),
        queries({"a0": W}, variance=2.0),
        queries({"a1": "prefix"}, variance=1.0),
    ]
    layout = laid_out(workload([6, 3], groups))
    weights = random(layout, 1, 2, 0.3)
    # e has no part in the second block.
    weights.p[0][3:] = 0.0
    weights.p[0][:3] += 1e-3
    splits = plan_splits(layout, weights)
    splits[0] = replace(splits[0], classes=((), 1))
    here = pinched.scale_duals(layout, weights)
    f = next(f for f, one in enumerate(layout.factors) if one.attribute == 0)
    X, e = here.pinches[f].X.copy(), here.pinches[f].frame[:, 0]
    X[3:, 3:] = np.diag([0.02, 0.03, 0.05])
    frame = here.pinches[f].frame
    loose = np.array([0, 0, 0, 0.02, 0.03, 0.05])
    assert not e[3:].any()
    assert not frame[3:].any()
    top = pinch.split_rest(frame[:3], e[:3], ())
    parts = [np.concatenate([*top, np.zeros((3, 1))]), np.eye(6)[:, 3:]]
    above = X[:, :3] * (np.arange(6) < 3)[:, None]
    pinches = [
        pinch.pinch_factor(X, frame, 0.3, parts),
        pinch.pinch_factor(above, frame[:3], 0.3, top, loose=loose[:, None]),
    ]
    places = place_terms(layout, splits, weights.w > 0)
    found = [
        places.lower_square_roots(places.fill(here.w, here.tables | {f: one.table}))
        for one in pinches
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-11)
    assert pinches[0].reach == pytest.approx(pinches[1].reach)


@functools.cache
def solved(name):
    return find_member(STRUCTURES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_the_search_returns_what_the_bound_is(name):
    found = solved(name)
    weights, value = ascent.ascend_product_bound(found.batched, found.weights)
    assert value == pinched.lower_product_cost(found.batched, weights)
    assert value == pinched.lower_product_cost(found.batched, weights)
    assert value <= found.upper * (1 + 1e-9)
    assert value <= exact(found.batched, weights) * EXACT
    given_weights = ascent.fit_product_duals(found.batched, found.weights)
    assert value >= pinched.lower_product_cost(found.batched, given_weights) * (1 - 1e-9)


def test_a_search_without_room_for_frames_takes_one_group(monkeypatch):
    found = solved("prefixes")
    monkeypatch.setattr(grams_module, "MAX_ENTRIES", 4)
    weights, value = ascent.ascend_product_bound(found.batched, found.weights)
    assert (weights.w > 0).sum() == 1
    assert 0 < value == pinched.lower_product_cost(found.batched, weights)


@pytest.mark.parametrize("name", ["prefixes", "kinds", "targets apart"])
def test_ascent_knows_its_derivatives(name):
    layout = LAYOUTS[name]
    weights = random(layout, 6, most(layout))
    places = place_terms(layout, plan_splits(layout, weights), weights.w > 0)

    def value(of):
        here = pinched.scale_duals(layout, of)
        found = ascent.differentiate_norms(places, here.w, here.tables)
        # X scales as 2^shift, and w is scaled by its largest.
        return here, found, found[0] * here.divide_by_mass(1.0) * math.sqrt(float(mass(of)))

    def mass(of):
        return product_matrix(layout, of)[1]

    here, (total_, by_w, by_table, roots), start = value(weights)
    assert 2 * by_w @ here.w == pytest.approx(total_)
    scale = start / total_
    gains = {}
    for f, a in enumerate(one.attribute for one in layout.factors):
        if layout.symmetric[a]:
            continue
        rows, gains[f] = here.pinches[f].compute_parts(by_table[f])
        assert rows.sum() == pytest.approx(gains[f].sum())
        for j in np.argsort(weights.y[f])[-2:]:
            y = list(weights.y)
            y[f] = y[f].copy()
            y[f][j] *= 1 + 1e-6
            moved = value(replace(weights, y=tuple(y)))[2]
            assert (moved - start) / 0.5e-6 == pytest.approx(rows[j] * scale, rel=1e-3, abs=1e-6)
    couplings = couple_totals(layout, here, places, roots, by_table)
    p = ascend_cells(layout, weights.p, here, gains, couplings)
    for a in {layout.factors[f].attribute for f in gains}:
        for j in np.argsort(weights.p[a])[-2:]:
            cells = [own / own.sum() for own in weights.p]
            cells[a][j] += 1e-6
            moved = value(replace(weights, p=tuple(cells)))[2]
            # ||X||_* is that at weights that sum to 1 over the square root of their sum.
            slope = (moved * math.sqrt(1 + 1e-6) - start) / 0.5e-6
            share = slope * weights.p[a][j] / weights.p[a].sum() / start
            assert share == pytest.approx(p[a][j], rel=1e-3, abs=1e-6)


def hostile():
    def p(value):
        return lambda d: replace(d, p=(value, *d.p[1:]))

    def y(value):
        return lambda d: replace(d, y=(value, *d.y[1:]))

    def w(value):
        return lambda d: replace(d, w=value)

    return [
        (errors.BAD_PROOF, p(np.ones(5))),
        (errors.BAD_PROOF, p(np.ones((4, 1)))),
        (errors.BAD_PROOF, p([1.0] * 4)),
        (errors.BAD_PROOF, p(np.ones(4, np.float32))),
        (errors.BAD_PROOF, p(np.ones(4, dtype=object))),
        (errors.BAD_PROOF, p(np.array([1, -1e-300, 1, 1]))),
        (errors.BAD_PROOF, p(np.array([1, np.nan, 1, 1]))),
        (errors.BAD_PROOF, p(np.array([1, np.inf, 1, 1]))),
        (errors.BAD_PROOF, p(np.zeros(4))),
        (errors.BAD_PROOF, y(np.ones(1))),
        (errors.BAD_PROOF, lambda d: replace(d, y=(0 * d.y[0], *d.y[1:]))),
        (errors.BAD_PROOF, w(np.ones(3))),
        (errors.BAD_PROOF, w(np.array([1.0, 1.0, 1.0, -1.0]))),
        (errors.BAD_PROOF, w(np.zeros(4))),
        (errors.BAD_PROOF, lambda d: replace(d, p=d.p[1:])),
        (errors.BAD_PROOF, lambda d: replace(d, p=list(d.p))),
        (errors.BAD_PROOF, lambda d: replace(d, y=(*d.y, np.ones(1)))),
        (errors.BAD_PROOF, lambda d: replace(d, t=0)),
        (errors.BAD_PROOF, lambda d: replace(d, t=5)),
        (errors.BAD_PROOF, lambda d: replace(d, t=2.0)),
        (errors.BAD_PROOF, lambda d: replace(d, t=True)),
        (errors.BAD_PROOF, lambda d: replace(d, rests=0)),
        (errors.BAD_PROOF, lambda d: replace(d, rests=4097)),
        (errors.BAD_PROOF, lambda d: replace(d, rests=2.0)),
        (errors.BAD_PROOF, lambda d: replace(d, tilt=0.0)),
        (errors.BAD_PROOF, lambda d: replace(d, tilt=math.nan)),
        (errors.BAD_PROOF, lambda d: replace(d, tilt=1e300)),
        (errors.BAD_PROOF, lambda d: replace(d, tilt="1")),
    ]


@pytest.mark.parametrize("index", range(len(hostile())))
def test_weights_that_are_none_are_refused(index):
    message, spoilt = hostile()[index]
    layout = LAYOUTS["kinds"]
    weights = random(layout, 0, 2)
    pinched.lower_product_cost(layout, weights)
    with pytest.raises(ValueError, match=message):
        pinched.lower_product_cost(layout, spoilt(weights))


@pytest.mark.parametrize(
    ("sizes", "t"), [([40] * 3, 30), ([3] * 12, 3), ([400] * 2, 400)], ids=["wide", "deep", "large"]
)
def test_frames_too_large_are_refused_before_they_take_memory(sizes, t):
    groups = [queries({f"a{i}": "prefix" for i in range(len(sizes))}, variance=1.0)]
    layout = laid_out(workload(sizes, [*groups, total(variance=1.0)]))
    with pytest.raises(ValueError, match=rf"too much work to check \(columns: {t}, parts: 1\)"):
        pinched.lower_product_cost(layout, random(layout, 0, t))


def test_factors_too_large_are_refused():
    group = queries({"a0": np.ones((1, 3000))}, variance=1.0)
    layout = laid_out(workload([3000], [group]))
    (one,) = layout.factors
    many = replace(one, rows=np.broadcast_to(np.ones(3000), (3000, 3000)), count=3000)
    large = replace(layout, factors=(many,))
    with pytest.raises(ValueError, match=r"too much work to check$"):
        pinched.lower_product_cost(large, random(large, 0, 1))
