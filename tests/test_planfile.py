"""Plan files: round trips, damage, edits, and claims that do not hold."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

import fitplug as fp
from fitplug import planfile

from .workloads import identity_and_sum, marginals, prefix


def people_plan():
    domain = fp.Domain(
        {
            "sex": ["1", "2"],
            "age": fp.Integers(0, 5),
            "income": fp.Bins([0, 1.5, 7]),
            "race": fp.Categories(["a", "b"], other="Other"),
        }
    )
    return fp.design(
        fp.Workload(
            domain,
            [
                fp.queries({"sex": "identity", "age": "prefix"}, std=5.0, name="pyramid"),
                fp.queries({"age": fp.ranges([(2, 5)])}, moe=3.0, confidence=0.9),
                fp.marginal("race", "income", variance=np.arange(1.0, 7).reshape(3, 2)),
                fp.queries({"sex": [[1.0, -1.0]]}, std=2.0, name="difference"),
                fp.total(variance=4.0),
            ],
        )
    )


@pytest.mark.parametrize(
    "make",
    [
        people_plan,
        lambda: fp.design(fp.Workload.from_matrix(prefix(5), variance=1.0), rho=0.1),
        lambda: fp.design(fp.Workload.from_matrix(marginals([3, 3], 1), std=2.0)),
        lambda: fp.design(
            fp.Workload.from_matrix(np.random.default_rng(0).normal(size=(3, 6)), std=1.0)
        ),
    ],
    ids=["rows", "cells", "marginals", "more cells than rank"],
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
        with pytest.raises(fp.PlanError, match="no such plan file"):
            fp.Plan.load(tmp_path / "none.npz")

    @pytest.mark.parametrize("content", [b"", b"PK", b"not a plan at all", b"\x93NUMPY"])
    def test_not_a_plan(self, tmp_path, content):
        path = tmp_path / "plan.npz"
        path.write_bytes(content)
        with pytest.raises(fp.PlanError, match="no plan file"):
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

    @pytest.mark.parametrize("entry", ["M", "p", "group0.variances", "unit_variances"])
    def test_an_edited_array_is_noticed(self, saved, entry):
        with np.load(saved) as archive:
            arrays = dict(archive)
        arrays[entry] = arrays[entry] * 2
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
        header, arrays = plan._content()
        planfile.write(saved, header | {"format": 99}, arrays)
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


@pytest.fixture(scope="module", params=["cells", "rows"])
def forged(request):
    W = prefix(5) if request.param == "cells" else marginals([2, 3], 1)
    return fp.design(fp.Workload.from_matrix(W, variance=1.0))


class TestVerify:
    """Forged plans, with a digest to match: verify trusts nothing but the content."""

    def refused(self, forged, says, **changed):
        with pytest.raises(fp.PlanError, match=says):
            dataclasses.replace(forged, **changed).verify()

    def strategy(self, forged, **changed):
        return dataclasses.replace(forged.strategy, **changed)

    def test_the_honest_plan_passes(self, forged):
        forged.verify()

    def test_less_privacy_cost_than_it_has(self, forged):
        less = self.strategy(forged, sensitivity_squared=forged.strategy.sensitivity_squared - 1)
        self.refused(forged, "privacy cost", strategy=less)

    def test_less_variance_than_it_has(self, forged):
        less = self.strategy(forged, unit_variances=forged.strategy.unit_variances * 0.99)
        self.refused(forged, "variances", strategy=less)

    def test_more_noise_than_targets_allow(self, forged):
        self.refused(forged, "target", noise_std=forged.noise_std * 1.001)

    def test_a_bound_higher_than_proven(self, forged):
        self.refused(forged, "lower bound", lower_bound=forged.lower_bound * 1.0001)

    def test_dual_weights_that_prove_less(self, forged):
        self.refused(forged, "lower bound", p=np.eye(len(forged.p))[0])

    def test_a_matrix_that_loses_a_query(self, forged):
        M = forged.strategy.M.copy()
        M[-1, -1] = 0
        self.refused(forged, "invertible", strategy=self.strategy(forged, M=M))

    def test_a_basis_that_does_not_span(self, forged):
        basis = forged.strategy.basis
        index = basis.index.copy()
        index[0] = index[1]
        self.refused(
            forged,
            "span|basis|strategy",
            strategy=self.strategy(forged, basis=dataclasses.replace(basis, index=index)),
        )

    def test_more_records_than_its_integers_hold(self, forged):
        more = self.strategy(forged, max_records=forged.strategy.max_records * 2)
        self.refused(forged, "records", strategy=more)


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
        return fp.design(fp.Workload(domain, groups))._content()

    @pytest.mark.parametrize(
        "forge",
        [
            lambda h, a: h.update(sensitivity_squared="1"),
            lambda h, a: h.update(max_records=2**60),
            lambda h, a: a.update({"group0.target": np.array(0.001)}),
            lambda h, a: a.update({"group0.variances": a["group0.variances"] * 2}),
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
            lambda h, a: a.update(M=a["M"].astype(np.float64)),
            lambda h, a: a.update(M=a["M"] * 2**40),
            lambda h, a: a.update(M=a["M"][:, ::-1].copy()),
            lambda h, a: a.update(p=a["p"].astype(complex)),
            lambda h, a: a.update(p=a["p"].astype(str)),
            lambda h, a: a.update(q=a["q"] * 0),
            lambda h, a: a.update({"basis.index": a["basis.index"] * 0}),
            lambda h, a: a.update({"basis.index": a["basis.index"].reshape(1, -1)}),
            lambda h, a: a.update({"basis.scale": a["basis.scale"] * 3}),
            lambda h, a: a.update({"unit_variances": a["unit_variances"] * (1 - 1e-9)}),
            lambda h, a: h.update(domain=[["a", ["1", "2"]], ["b", ["x", "y"]]]),
            lambda h, a: h.pop("domain"),
            lambda h, a: a.pop("q"),
        ],
    )
    def test_are_refused(self, content, tmp_path, forge):
        header, arrays = json.loads(json.dumps(content[0])), dict(content[1])
        forge(header, arrays)
        planfile.write(tmp_path / "plan.npz", header, arrays)
        with pytest.raises(fp.PlanError):
            fp.Plan.load(tmp_path / "plan.npz").verify()

    def test_the_honest_file_is_not(self, content, tmp_path):
        planfile.write(tmp_path / "plan.npz", *content)
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
        planfile.write(tmp_path / "plan.npz", header, arrays)
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
