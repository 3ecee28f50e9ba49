"""The number of rows of a person: if a spec does not say it, the command tells what is assumed."""

from __future__ import annotations

import pytest

from fitplug_cli.output import ONE_ROW_ASSUMED
from tests.helpers.command_line import SPEC, fitplug, make


@pytest.mark.parametrize("command", ["run", "report", "count"])
@pytest.mark.parametrize(
    ("written", "assumed"),
    [
        ("", True),
        ("contributions = 1\n", False),
        ("contributions = 2\n", False),
        ('person = "NOTE"\ncontributions = 1\n', False),
    ],
)
def test_one_row_is_assumed_only_where_the_spec_says_nothing(tmp_path, command, written, assumed):
    spec = make(tmp_path, SPEC.replace("[data]\n", f"[data]\n{written}"))
    ran = fitplug(command, spec, *(["--output", tmp_path / "c.npz"] if command == "count" else []))
    assert (ran.code, ran.err) == (0, "")
    assert (ONE_ROW_ASSUMED in ran.out) == assumed


def test_a_unit_says_it(tmp_path):
    spec = make(tmp_path, SPEC + "\n[privacy]\nunit = { records = 1 }\n")
    ran = fitplug("run", spec)
    assert (ran.code, ran.err) == (0, "")
    assert ONE_ROW_ASSUMED not in ran.out


def test_with_a_column_of_persons_it_must_be_written(tmp_path):
    spec = make(tmp_path, SPEC.replace("[data]\n", '[data]\nperson = "NOTE"\n'))
    for command in ("run", "report", "count"):
        ran = fitplug(command, spec)
        assert ran.code == 2
        assert "[data] person = 'NOTE' needs contributions, the most rows of each" in ran.err
    assert not (tmp_path / "budget.db").exists()
