"""Plan files: round trips, damage, edits, and claims that do not hold."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

import fitplug as fp
from fitplug import errors
from fitplug.domain import hierarchy
from fitplug.families.base.basis import Basis
from fitplug.files import write_with_digest
from fitplug.plan import plan_file as planfile
from fitplug.plan.verification import check_form, check_privacy
from tests.helpers.exact import full_strategy, least_variance, rationals
from tests.helpers.plans import (
    describe,
    mixed_workload,
    people_plan,
    replace_duals,
    symmetric_workload,
)
from tests.helpers.workloads import identity_and_sum, marginals, prefix


@pytest.mark.parametrize(
    "make",
    [
        people_plan,
        lambda: fp.design(fp.Workload.from_matrix(prefix(5), variance=1.0), rho=0.1),
        lambda: fp.design(symmetric_workload(), rho=0.1),
        lambda: fp.design(mixed_workload(), total_error_weight=0.1),
        lambda: fp.design(mixed_workload(), cell_budgets=[[[0.5]], [[0.1]], [[2.0]]]),
        lambda: fp.design(fp.Workload.from_matrix(marginals([3, 3], 1), std=2.0)),
        lambda: fp.design(
            fp.Workload.from_matrix(np.random.default_rng(0).normal(size=(3, 6)), std=1.0)
        ),
    ],
    ids=[
        "several blocks",
        "cells",
        "symmetric",
        "blocks and total error",
        "blocks and budgets",
        "marginals",
        "more cells than rank",
    ],
)
def test_round_trip(make, tmp_path):
    plan = make()
    plan.save(tmp_path / "plan.npz")
    again = fp.Plan.load(tmp_path / "plan.npz")
    again.verify()
    assert again.digest == plan.digest
    assert again.rho_exact == plan.rho_exact
    assert (again.rho, again.gap, again.scale) == (plan.rho, plan.gap, plan.scale)
    assert again.tables == plan.tables
    assert again.summary() == plan.summary()
    assert again.domain == plan.domain
    np.testing.assert_array_equal(again.workload.matrix(), plan.workload.matrix())
    for name in plan.workload.names:
        np.testing.assert_array_equal(again.variances[name], plan.variances[name])
        np.testing.assert_array_equal(again.targets[name], plan.targets[name])
    plan.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "plan.npz").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.npz", "plan.npz"]


@pytest.fixture(scope="module")
def plan():
    return fp.design(fp.Workload.from_matrix(identity_and_sum(4), variance=1.0))


@pytest.fixture
def saved(plan, tmp_path):
    path = tmp_path / "plan.npz"
    plan.save(path)
    return path


class TestDamage:
    def test_missing(self, tmp_path):
        with pytest.raises(fp.PlanError, match="the plan file does not exist"):
            fp.Plan.load(tmp_path / "none.npz")

    @pytest.mark.parametrize("content", [b"", b"PK", b"not a plan at all", b"\x93NUMPY"])
    def test_not_a_plan(self, tmp_path, content):
        path = tmp_path / "plan.npz"
        path.write_bytes(content)
        with pytest.raises(fp.PlanError, match="not a plan file"):
            fp.Plan.load(path)

    def test_truncated_anywhere(self, saved):
        whole = saved.read_bytes()
        for length in range(0, len(whole), 97):
            saved.write_bytes(whole[:length])
            with pytest.raises(fp.PlanError):
                fp.Plan.load(saved)

    def test_a_flipped_byte_anywhere_is_refused_or_changes_nothing(self, saved, plan):
        whole = saved.read_bytes()
        refused = 0
        for at in range(0, len(whole), 41):
            damaged = bytearray(whole)
            damaged[at] ^= 0x10
            saved.write_bytes(bytes(damaged))
            try:
                loaded = fp.Plan.load(saved)
            except fp.PlanError:
                refused += 1
            else:
                assert loaded.digest == plan.digest
        assert refused > 10

    @pytest.mark.parametrize(
        "entry",
        ["family0.M", "family0.index", "p", "targets", "variances", "unit_variances",
         "column_squares"],
    )  # fmt: skip
    def test_an_edited_array_is_noticed(self, saved, entry):
        with np.load(saved) as archive:
            arrays = dict(archive)
        arrays[entry] = arrays[entry] * 2 + 1
        np.savez(saved, **arrays)
        with pytest.raises(fp.PlanError, match="edited"):
            fp.Plan.load(saved)

    def test_an_edited_header_is_noticed(self, saved):
        with np.load(saved) as archive:
            arrays = dict(archive)
        header = json.loads(arrays["header"].tobytes())
        header["sensitivity_squared"] = "1"
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        np.savez(saved, **arrays)
        with pytest.raises(fp.PlanError, match="edited"):
            fp.Plan.load(saved)

    def test_a_plan_of_another_format(self, saved, plan):
        header, arrays = describe(plan)
        write_with_digest(saved, header | {"format": 99}, arrays)
        with pytest.raises(fp.PlanError, match="format 99"):
            fp.Plan.load(saved)

    def test_a_failed_write_leaves_the_old_file_and_nothing_else(self, saved, plan, monkeypatch):
        before = saved.read_bytes()

        def full(*_args, **_kwargs):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(planfile.np, "savez_compressed", full)
        with pytest.raises(OSError, match="No space"):
            plan.save(saved)
        assert saved.read_bytes() == before
        assert [p.name for p in saved.parent.iterdir()] == ["plan.npz"]


FORGED = {
    "cells": lambda: fp.Workload.from_matrix(prefix(5), variance=1.0),
    "rows": lambda: fp.Workload.from_matrix(marginals([2, 3], 1), variance=1.0),
    "symmetric": symmetric_workload,
    "mixed": mixed_workload,
}


@pytest.fixture(scope="module", params=FORGED.values(), ids=FORGED)
def forged(request):
    return fp.design(request.param())


class TestVerify:
    """Forged plans, with a digest to match: verify trusts nothing but the content."""

    def refused(self, forged, says, **changed):
        with pytest.raises(fp.PlanError, match=says):
            dataclasses.replace(forged, **changed).verify()

    def strategy(self, forged, **changed):
        return dataclasses.replace(forged.strategy, **changed)

    def family(self, forged, number, **changed):
        """The strategy with one of its families changed."""
        families = list(forged.strategy.block_sets)
        families[number] = dataclasses.replace(families[number], **changed)
        return self.strategy(forged, block_sets=tuple(families))

    def test_the_honest_plan_passes(self, forged):
        forged.verify()

    def test_less_privacy_cost_than_it_has(self, forged):
        less = self.strategy(forged, sensitivity_squared=forged.strategy.sensitivity_squared - 1)
        self.refused(forged, "privacy cost", strategy=less)

    def test_less_variance_than_it_has(self, forged):
        less = self.strategy(forged, unit_variances=forged.strategy.unit_variances * 0.99)
        self.refused(forged, "variances", strategy=less)

    def test_one_variance_less_than_it_has(self, forged):
        unit = forged.strategy.unit_variances
        for row in range(len(unit)):
            less = unit.copy()
            less[row] *= 1 - 1e-9
            self.refused(forged, "variances", strategy=self.strategy(forged, unit_variances=less))

    def test_a_cell_that_costs_more_than_the_profile_says(self, forged):
        squares = forged.strategy.column_squares
        for cell in range(len(squares)):
            less = squares.copy()
            less[cell] *= 1 - 1e-9
            self.refused(
                forged, "cost of some cell", strategy=self.strategy(forged, column_squares=less)
            )

    def test_any_entry_of_the_strategy_changed_is_refused_or_all_it_says_is_true(self, forged):
        refused = tried = 0
        for number, family in enumerate(forged.strategy.block_sets):
            for at in np.argwhere(family.M):
                for step in (-1, 1):
                    M = family.M.copy()
                    M[tuple(at)] += step * max(1, abs(int(M[tuple(at)])) // 1000)
                    changed = self.family(forged, number, M=M)
                    plan, tried = dataclasses.replace(forged, strategy=changed), tried + 1
                    try:
                        plan.verify()
                    except fp.PlanError:
                        refused += 1
                    else:
                        self.holds(plan)
        assert refused > 0.7 * tried
        self.holds(forged)

    @staticmethod
    def holds(plan):
        """Every claim, in exact arithmetic on the strategy written out."""
        A, noise = full_strategy(plan), Fraction(plan.noise_std) ** 2
        squares = [sum(v * v for v in column) for column in zip(*A, strict=True)]
        assert plan.rho_exact == max(squares) / (2 * noise)
        shape = plan.workload.shape
        at = tuple(slice(None) if n in plan.workload.attributes else 0 for n in plan.domain.names)
        profile = np.broadcast_to(plan.profile()[at], shape).ravel()
        for square, claimed in zip(squares, profile, strict=True):
            assert square / noise <= Fraction(float(claimed))
        claimed = np.concatenate([v.ravel() for v in plan.variances.values()])
        rows = rationals(plan.workload.matrix())
        for row, most, target in zip(rows, claimed, plan.workload.targets(), strict=True):
            variance = least_variance(A, row) * noise
            assert variance <= Fraction(float(most)) <= Fraction(float(target))

    def test_more_noise_than_targets_allow(self, forged):
        self.refused(forged, "target", noise_std=forged.noise_std * 1.001)

    def test_a_bound_higher_than_proven(self, forged):
        self.refused(forged, "lower bound", lower_bound=forged.lower_bound * 1.0001)

    def test_dual_weights_that_prove_less(self, forged):
        for name in ("p", "q"):
            weights = getattr(forged.proof.duals, name)
            if len(weights) > 1:
                edited = replace_duals(forged, **{name: np.eye(len(weights))[0]})
                self.refused(edited, "lower bound")

    def test_a_matrix_that_loses_a_query(self, forged):
        for number, family in enumerate(forged.strategy.block_sets):
            for block in range(len(family.blocks)):
                M = family.M.copy()
                M[block, -1, -1] = 0
                self.refused(forged, errors.BAD_INTEGERS, strategy=self.family(forged, number, M=M))

    def test_a_basis_that_does_not_span(self, forged):
        for number, family in enumerate(forged.strategy.block_sets):
            index = family.basis.index.copy()
            index[0] = index[1] if len(index) > 1 and index[1] != index[0] else -1
            basis = dataclasses.replace(family.basis, index=index)
            changed = self.family(forged, number, basis=basis)
            self.refused(forged, f"{errors.BAD_INTEGERS}|privacy", strategy=changed)

    @pytest.mark.parametrize("power", [-1, -30, 21, 64, 1000])
    def test_a_basis_of_fractions_or_of_more_than_64_bits(self, forged, power):
        for number, family in enumerate(forged.strategy.block_sets):
            if family.basis.kind == "rows":
                scale = family.basis.scale * 2.0**power
                basis = dataclasses.replace(family.basis, scale=scale)
                with pytest.raises(fp.PlanError, match=errors.BAD_INTEGERS):
                    self.load_alone(
                        dataclasses.replace(
                            forged, strategy=self.family(forged, number, basis=basis)
                        )
                    )

    @staticmethod
    def load_alone(plan):
        """What `Plan.load` checks of large plans."""
        check_form(plan)
        check_privacy(plan)

    def test_a_scaled_basis_costs_what_it_says_or_is_refused(self, forged):
        """A row times a power of two is an integer basis too: what it costs must be counted."""
        for number, family in enumerate(forged.strategy.block_sets):
            k = family.basis.size
            basis = Basis("rows", np.arange(k), np.full(k, 2.0**20))
            scaled = dataclasses.replace(forged, strategy=self.family(forged, number, basis=basis))
            with pytest.raises(fp.PlanError):
                self.load_alone(scaled)

    def test_a_block_that_is_measured_twice_or_never(self, forged):
        first, *rest = forged.strategy.block_sets
        one = dataclasses.replace
        beyond = first.blocks + len(forged.strategy.structure.blocks)
        for families in (
            [first, *rest, first],
            rest,
            [one(first, blocks=beyond), *rest],
            [one(first, blocks=first.blocks - 1), *rest],
            [one(first, blocks=np.append(first.blocks, 0)), *rest],
            [one(first, blocks=first.blocks[:0], M=first.M[:0]), *rest],
            [one(first, blocks=first.blocks.astype(float)), *rest],
            [one(first, blocks=first.blocks[:, None]), *rest],
            [one(family, blocks=first.blocks) for family in (first, *rest)] * (1 + (not rest)),
        ):
            strategy = self.strategy(forged, block_sets=tuple(families))
            self.refused(forged, errors.BAD_INTEGERS, strategy=strategy)

    def test_more_records_than_its_integers_hold(self, forged):
        more = self.strategy(forged, max_records=forged.strategy.max_records * 2)
        self.refused(forged, "number of rows that the plan can count", strategy=more)


def test_large_trees_are_written_level_by_level(tmp_path, monkeypatch):
    codes = [f"{i // 20:02}{i:04}" for i in range(300)]
    tree = fp.Hierarchy({"county": 2, "tract": 6}, codes)
    odd = fp.Hierarchy(["x", "y"], [["é", -5], ["é", 7], ["😀", 9]])
    domain = fp.Domain({"geo": tree, "odd": odd})
    groups = [fp.queries({"geo": level}, std=3.0) for level in tree.levels]
    workload = fp.Workload(domain, [*groups, fp.queries({"odd": "x"}, std=2.0)])
    monkeypatch.setattr(hierarchy, "MOST_LISTED", 2)
    plan = fp.design(workload)
    plan.save(tmp_path / "plan.npz")
    again = fp.Plan.load(tmp_path / "plan.npz")
    assert again.digest == plan.digest == planfile.plan_digest(again)
    assert again.domain == domain


class TestForgedFiles:
    """Files whose digest was made anew: loading and verifying hold every part against the rest."""

    @pytest.fixture
    def content(self):
        domain = fp.Domain({"a": ["1", "2", "3"], "b": ["x", "y"]})
        groups = [
            fp.queries({"a": "identity", "b": "total"}, std=2.0, name="first"),
            fp.queries({"a": fp.ranges([("1", "2")])}, moe=3.0, confidence=0.9, name="second"),
            fp.queries({"b": [[1.0, -1.0]]}, std=2.0, name="third"),
        ]
        return describe(fp.design(fp.Workload(domain, groups)))

    @pytest.mark.parametrize(
        "forge",
        [
            lambda h, a: h.update(sensitivity_squared="1"),
            lambda h, a: h.update(max_records=2**60),
            lambda h, a: a.update(targets=a["targets"] * [0.001, 1, 1]),
            lambda h, a: a.update(variances=a["variances"] * [2, 1, 1]),
            lambda h, a: a.update(targets=a["targets"][:-1]),
            lambda h, a: a.update(variances=np.append(a["variances"], 1.0)),
            lambda h, a: h["groups"][0].update(shape=[3]),
            lambda h, a: h["groups"][0].update(shape=[-1]),
            lambda h, a: a.update(variances=a["variances"].astype(np.float32)),
            lambda h, a: h.update(dense=["a"]),
            lambda h, a: h.update(dense=["b", "a"]),
            lambda h, a: h.update(dense=["a", "b", "c"]),
            lambda h, a: h.update(bases=[]),
            lambda h, a: h.update(bases=["cells"]),
            lambda h, a: h.update(bases=["bogus"]),
            lambda h, a: h["bases"].append("rows"),
            lambda h, a: h.update(format="2"),
            lambda h, a: h.update(total_error_weight="-0x1p0"),
            lambda h, a: a.update(column_squares=a["column_squares"] * (1 - 1e-9)),
            lambda h, a: a.update(column_squares=a["column_squares"][:-1]),
            lambda h, a: a.update(budgets=np.full(6, 1e-9)),
            lambda h, a: a.update({"group1.factor0": np.array([[0, 7]])}),
            lambda h, a: a.update({"group2.factor0": np.array([[1.0, np.nan]])}),
            lambda h, a: h["groups"][0].update(name="second"),
            lambda h, a: h["groups"][0].update(name=["a"]),
            lambda h, a: h["groups"][0].update(target="bogus"),
            lambda h, a: h["groups"][1].update(confidence=3),
            lambda h, a: h["groups"][0]["factors"].append(["a", "identity"]),
            lambda h, a: h["groups"][0]["factors"][0].__setitem__(1, "zz"),
            lambda h, a: h["groups"][0]["factors"][0].__setitem__(1, "matrix"),
            lambda h, a: h.update(noise_std="0x1p99999"),
            lambda h, a: h.update(noise_std=(0.0).hex()),
            lambda h, a: h.update(noise_std="nan"),
            lambda h, a: h.update(tolerance=float("nan")),
            lambda h, a: h.update(lower_bound=(1e9).hex()),
            lambda h, a: a.update({"family0.M": a["family0.M"].astype(np.float64)}),
            lambda h, a: a.update({"family0.M": a["family0.M"] * 2**40}),
            lambda h, a: a.update({"family0.M": a["family0.M"][:, :, ::-1].copy()}),
            lambda h, a: a.update({"family0.M": a["family0.M"][0]}),
            lambda h, a: a.update({"family0.blocks": a["family0.blocks"] + 1}),
            lambda h, a: a.update(p=a["p"].astype(complex)),
            lambda h, a: a.update(p=a["p"].astype(str)),
            lambda h, a: a.update(q=a["q"] * 0),
            lambda h, a: a.update({"family0.index": a["family0.index"] * 0}),
            lambda h, a: a.update({"family0.index": a["family0.index"].reshape(1, -1)}),
            lambda h, a: a.update({"family0.scale": a["family0.scale"] * 3}),
            lambda h, a: a.update({"family0.scale": a["family0.scale"] * 2}),
            lambda h, a: a.update({"unit_variances": a["unit_variances"] * (1 - 1e-9)}),
            lambda h, a: h.update(domain=[["a", ["1", "2"]], ["b", ["x", "y"]]]),
            lambda h, a: h.pop("domain"),
            lambda h, a: a.pop("q"),
        ],
    )
    def test_are_refused(self, content, tmp_path, forge):
        header, arrays = json.loads(json.dumps(content[0])), dict(content[1])
        forge(header, arrays)
        write_with_digest(tmp_path / "plan.npz", header, arrays)
        with pytest.raises(fp.PlanError):
            fp.Plan.load(tmp_path / "plan.npz").verify()

    def test_the_honest_file_is_not(self, content, tmp_path):
        write_with_digest(tmp_path / "plan.npz", *content)
        fp.Plan.load(tmp_path / "plan.npz").verify()

    def test_arrays_that_no_kind_of_factor_asks_for_change_nothing(self, content, tmp_path):
        header, arrays = content
        honest = planfile.read_workload(header, arrays).matrix()
        added = {**arrays, "group0.factor0": np.eye(3)[::-1], "group0.factor1": np.eye(2)[:1]}
        np.testing.assert_array_equal(planfile.read_workload(header, added).matrix(), honest)

    @pytest.mark.parametrize("factor", [1e-200, 1e-308])
    def test_tiny_dual_weights_prove_no_more(self, content, tmp_path, factor):
        header, arrays = dict(content[0]), dict(content[1])
        arrays |= {"p": arrays["p"] * factor, "q": arrays["q"] * factor}
        header["lower_bound"] = (float.fromhex(header["lower_bound"]) * 1.001).hex()
        write_with_digest(tmp_path / "plan.npz", header, arrays)
        with pytest.raises(fp.PlanError, match="lower bound"):
            fp.Plan.load(tmp_path / "plan.npz").verify()


def test_the_digest_is_the_same_in_another_process(tmp_path):
    plan = people_plan()
    plan.save(tmp_path / "plan.npz")
    code = "import sys, fitplug; print(fitplug.Plan.load(sys.argv[1]).digest)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "plan.npz")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == plan.digest
