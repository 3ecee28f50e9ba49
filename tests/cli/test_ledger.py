"""`fitplug ledger`, and how the other commands charge."""

from __future__ import annotations

import csv
import io
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

import fitplug as fp
from fitplug.display.numbers import format_up
from fitplug.ledger import read_statement
from fitplug.privacy import DiscreteNoise, epsilon_at, rho_at, rho_of_budget
from tests.helpers.command_line import SPEC, Ran, fitplug, make, names

DIGEST = "ab" * 32
COLUMNS = [
    *("id", "time", "rho", "rho_exact", "what", "key", "plan_digest", "folder"),
    *("covered_by", "profile", "state", "state_time", "answers", "counts", "unit"),
    *("noise_std", "noise_answers"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


def refused(ran: Ran, code: int, *says: str) -> None:
    assert ran.code == code, ran
    assert ran.out == ""
    assert ran.err.startswith(("fitplug: ", f'{{"error": {{"code": {code}, "kind": "'))
    assert ran.err.count("\n") == 1
    assert all(word in ran.err for word in says), ran.err


def charged(path: Path) -> fp.Ledger:
    ledger = fp.Ledger(path, rho=1.0)
    ledger.charge(0.25, what='an, "odd"\nname \x1b[31m[bold]', key="k", plan_digest=DIGEST)
    ledger.charge(Fraction(1, 3), what="plain", folder="/out/release")
    return ledger


class TestInit:
    def test_in_rho(self, path):
        ran = fitplug("ledger", "init", path, "--rho", "0.5")
        assert (ran.code, ran.err) == (0, "")
        assert "rho = 0.5" in ran.out
        assert str(path) in ran.out
        assert fp.Ledger(path).total == 0.5

    def test_in_epsilon_and_delta(self, path):
        assert fitplug("ledger", "init", path, "--epsilon", "1", "--delta", "1e-9").code == 0
        ledger = fp.Ledger(path)
        assert (ledger.total, ledger.privacy) == (rho_of_budget(1.0, 1e-9), (1.0, 1e-9))

    def test_again(self, path):
        fitplug("ledger", "init", path, "--rho", "1")
        fp.Ledger(path).charge(0.25, what="x")
        ran = fitplug("ledger", "init", path, "--rho", "1")
        assert ran.code == 0
        assert "0.25 already spent" in ran.out
        refused(fitplug("ledger", "init", path, "--rho", "2"), 1, str(path), "1.0", "not 2")
        assert fp.Ledger(path).spent == 0.25

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ([], "--rho"),
            (["--rho", "-1"], "-1"),
            (["--rho", "nan"], "nan"),
            (["--rho", "much"], "'--rho'"),
            (["--rho", "1", "--epsilon", "1"], "not both"),
            (["--epsilon", "1"], "delta"),
            (["--epsilon", "1", "--delta", "2"], "delta must be above 0 and below 1, not 2.0"),
        ],
    )
    def test_wrong_budgets(self, path, options, says):
        refused(fitplug("ledger", "init", path, *options), 2, says)
        assert names(path.parent) == set()

    def test_no_folder(self, path):
        refused(fitplug("ledger", "init", path / "x", "--rho", "1"), 1, "Create the folder first")


class TestShow:
    def test_a_table_a_person_can_read(self, path):
        charged(path)
        ran = fitplug("ledger", "show", path)
        assert (ran.code, ran.err) == (0, "")
        assert "\x1b" not in ran.out
        for words in ("0.25", "0.333334", "plain", "/out/release", DIGEST[:12], "[bold]"):
            assert words in ran.out
        assert "left          rho = 0.416666" in ran.out
        assert "unit          one row added or removed" in ran.out
        assert len(ran.out.splitlines()) == 4 + 1 + 5

    def test_epsilon_where_the_budget_is_in_it(self, path):
        noise = DiscreteNoise(1e6, 10)
        fp.Ledger(path, epsilon=1.0, delta=1e-9).charge(0.01, what="x", noise=noise)
        out = fitplug("ledger", "show", path).out
        spent = epsilon_at(0.02**0.5, 1e-9, noise.loss)
        assert "(epsilon 1 at delta 1e-9)" in out
        assert f"(epsilon {format_up(spent, 6)} at delta 1e-9)" in out
        assert "discrete Gaussian only" in out

    def test_a_ledger_for_any_noise_says_so(self, path):
        budget = ["--epsilon", "1", "--delta", "1e-9"]
        assert fitplug("ledger", "init", path, *budget, "--any-noise").code == 0
        assert fp.Ledger(path).total == rho_at(1.0, 1e-9)
        assert "noise         any" in fitplug("ledger", "show", path).out
        assert json.loads(fitplug("ledger", "show", path, "--json").out)["any_noise"]
        again = fitplug("ledger", "init", path, *budget)
        assert again.code == 1
        assert "at delta = 1e-9 for any noise, not" in again.err

    def test_json(self, path):
        ledger = charged(path)
        said = json.loads(fitplug("ledger", "show", path, "--json").out)
        assert (said["total"], said["spent"]) == (1.0, ledger.spent)
        assert said["remaining"] == ledger.remaining
        assert Fraction(said["spent_exact"]) == Fraction(7, 12)
        assert (said["epsilon"], said["delta"]) == (None, None)
        assert [list(entry) for entry in said["entries"]] == [COLUMNS] * 2
        first, second = said["entries"]
        assert (first["what"], first["key"]) == (ledger.entries()[0].what, "k")
        assert first["plan_digest"] == DIGEST
        assert (second["id"], second["folder"]) == (2, "/out/release")
        assert Fraction(second["rho_exact"]) == Fraction(1, 3)
        assert said["unit"] == first["unit"] == {"records": 1}

    def test_nothing_yet(self, path):
        fp.Ledger(path, rho=1.0)
        assert "Nothing has been charged yet" in fitplug("ledger", "show", path).out


class TestExport:
    def test_csv(self, path):
        ledger = charged(path)
        ran = fitplug("ledger", "show", path, "--csv")
        assert (ran.code, ran.err) == (0, "")
        rows = list(csv.DictReader(io.StringIO(ran.out, newline="")))
        assert list(rows[0]) == COLUMNS
        assert [row["what"] for row in rows] == [e.what for e in ledger.entries()]
        assert [Fraction(row["rho_exact"]) for row in rows] == [Fraction(1, 4), Fraction(1, 3)]
        assert rows[0]["folder"] == rows[0]["covered_by"] == ""
        assert [json.loads(row["unit"]) for row in rows] == [{"records": 1}] * 2

    def test_amounts_with_more_digits_than_python_prints(self, path):
        fp.Ledger(path, rho=1.0).charge(Fraction(1, 16**5000), what="x")
        assert f"0x1/0x1{'0' * 5000}" in fitplug("ledger", "show", path, "--csv").out

    def test_one_of_the_two(self, path):
        charged(path)
        refused(fitplug("ledger", "show", path, "--csv", "--json"), 2, "--csv", "--json")


@pytest.mark.parametrize("command", [["show"], ["show", "--json"], ["show", "--csv"]])
def test_what_is_no_ledger(path, command):
    arguments = ["ledger", command[0], path, *command[1:]]
    refused(fitplug(*arguments), 2, str(path), "no such ledger. Check the path")
    assert names(path.parent) == set()
    path.write_bytes(b"something else" * 100)
    refused(fitplug(*arguments), 1, str(path), "not a SQLite database")


class TestCharging:
    def test_the_entry_says_which_plan_and_where(self, tmp_path):
        assert fitplug("run", make(tmp_path), "--key", "2024").code == 0
        (entry,) = fp.Ledger(tmp_path / "budget.db").entries()
        record = json.loads((tmp_path / "release" / "release.json").read_text())
        assert (entry.key, entry.plan_digest) == ("2024", record["plan_digest"])
        assert entry.folder == str(tmp_path / "release")

    def test_a_retry_finds_the_release_and_draws_nothing(self, tmp_path):
        spec = make(tmp_path)
        assert fitplug("run", spec, "--key", "2024").code == 0
        before = (tmp_path / "release" / "release.json").read_bytes()
        ran = fitplug("run", spec, "--key", "2024")
        assert (ran.code, ran.err) == (0, "")
        assert f"release       {tmp_path / 'release'}" in ran.out
        assert (tmp_path / "release" / "release.json").read_bytes() == before
        assert len(fp.Ledger(tmp_path / "budget.db").entries()) == 1

    def test_a_key_of_another_plan_has_an_exit_code_of_its_own(self, tmp_path):
        assert fitplug("run", make(tmp_path), "--key", "2024").code == 0
        spec = make(tmp_path / "b", SPEC.replace("std = 5.0", "std = 6.0").replace(
            '"budget.db"', '"../budget.db"'))  # fmt: skip
        ran = fitplug("run", spec, "--key", "2024")
        assert ran.code == 4
        assert "it is for another plan. Use that plan, or another key." in ran.err
        assert len(fp.Ledger(tmp_path / "budget.db").entries()) == 1
        assert not (tmp_path / "b" / "release").exists()

    def test_a_refusal_says_requested_and_remaining(self, tmp_path):
        spec = make(tmp_path, SPEC.replace("rho = 100.0", "rho = 0.1"))
        assert fitplug("run", spec).code == 0
        ledger = fp.Ledger(tmp_path / "budget.db")
        ran = fitplug("run", spec, "--again", "--replace")
        assert ran.code == 3
        # It is rounded down, but for the last digits of a double.
        (left,) = re.findall(r"has (\S+) left", ran.err)
        assert ledger.remaining * (1 - 1e-2) < float(left) <= ledger.remaining * (1 + 1e-9)
        (cost,) = re.findall(r"rho = (\S+) is over", ran.err)
        assert 1 - 1e-9 < float(cost) / float(ledger.entries()[0].rho) < 1.01
        assert len(ledger.entries()) == 1

    def test_free_within_an_earlier_charge(self, tmp_path):
        """Men, of whom the first asked nothing."""
        women = (
            SPEC[: SPEC.index("[[query]]")]
            + ('[[query]]\nname = "w"\nSEX = [[1, 0]]\nINC = "identity"\nstd = 5.0\n')
            + SPEC[SPEC.index("\n[ledger]") :]
        )
        spec = make(tmp_path, women)
        assert fitplug("run", spec, "--key", "women").code == 0
        men = tmp_path / "men.toml"
        men.write_text(women.replace("[[1, 0]]", "[[0, 1]]").replace("release/", "men/"))
        ran = fitplug("run", men, "--covered-by", "women")
        assert (ran.code, ran.err) == (0, "")
        assert "covered by charge 1," in ran.out
        record = json.loads((tmp_path / "men" / "release.json").read_text())
        assert record["rho_charged"] == 0 < record["rho"]
        one, two = fp.Ledger(tmp_path / "budget.db").entries()
        assert (one.covered_by, two.covered_by, two.rho) == (None, 1, 0)
        ran = fitplug("run", men, "--covered-by", "1", "--again")
        assert ran.code == 3
        assert "SEX='2'" in ran.err
        shown = fitplug("ledger", "show", tmp_path / "budget.db").out
        assert "covered by 1" in shown

    def test_within_what_is_not_there(self, tmp_path):
        spec = make(tmp_path)
        ran = fitplug("run", spec, "--covered-by", "1")
        assert (ran.code, names(tmp_path)) == (1, {"people", "spec.toml"})
        assert "does not exist yet" in ran.err

    @pytest.mark.parametrize("option", ["--key", "--covered-by"])
    def test_without_a_ledger(self, tmp_path, option):
        text = SPEC.replace('[ledger]\npath = "budget.db"\nrho = 100.0\n', "")
        spec = make(tmp_path, f"ledger = false\n{text}")
        refused(fitplug("run", spec, option, "x"), 2, option, "[ledger]")

    def test_a_budget_in_epsilon_and_delta(self, tmp_path):
        both = "epsilon = 50.0\ndelta = 1e-9"
        spec = make(tmp_path, SPEC.replace("rho = 100.0", both))
        assert fitplug("run", spec).code == 0
        assert fitplug("run", spec, "--again", "--replace").code == 0
        assert fp.Ledger(tmp_path / "budget.db").privacy == (50.0, 1e-9)

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ("epsilon = 1.0", "epsilon and delta"),
            ("rho = 1.0\nepsilon = 1.0\ndelta = 0.1", "either rho, or both"),
            ("epsilon = 1e-30\ndelta = 0.1", "epsilon must be a number from 1e-20"),
        ],
    )
    def test_half_a_budget(self, tmp_path, wrong, says):
        spec = make(tmp_path, SPEC.replace("rho = 100.0", wrong))
        refused(fitplug("run", spec), 2, "spec.toml", "[ledger]", says)


def test_the_budget_is_the_decimal_that_is_given(tmp_path):
    path, written = tmp_path / "b.db", "0.1000000000000000000000000001"
    assert fitplug("ledger", "init", path, "--rho", written).code == 0
    assert read_statement(fp.Ledger(path))[0].total == Fraction(written)
    for amount in ("nan", "inf", "0", "-1", "1e999999999", "much"):
        assert fitplug("ledger", "init", tmp_path / "other.db", "--rho", amount).code == 2
    assert not (tmp_path / "other.db").exists()
