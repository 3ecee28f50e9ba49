"""The notebook in examples/opendp, executed as a new user does."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.helpers.places import EXAMPLES

NOTEBOOK = EXAMPLES / "opendp" / "survey.ipynb"


def printed(notebook):
    """What its cells print and show as text."""
    said = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            assert output["output_type"] != "error", output
            assert output.get("name") != "stderr", output
            data = output.get("data", {})
            said.append("".join(output.get("text", data.get("text/markdown", []))))
    return "\n".join(said)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    pytest.importorskip("polars")
    copy = tmp_path_factory.mktemp("notebook") / NOTEBOOK.name
    copy.write_bytes(NOTEBOOK.read_bytes())
    command = [sys.executable, "-m", "jupyter", "execute", "--inplace", "--timeout=120", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return copy


@pytest.mark.slow
def test_it_runs_and_stays_within_the_budget(executed):
    said = printed(executed)
    assert "the query has a privacy loss of" in said
    spent, budget = map(float, re.search(r"spent: rho = ([0-9.]+) of ([0-9.]+)", said).groups())
    assert 0.9 * budget < spent < budget
    low, high = re.search(r"women under 18: ([0-9,]+) to ([0-9,]+)", said).groups()
    assert float(high.replace(",", "")) - float(low.replace(",", "")) == pytest.approx(80, abs=2)
    assert "| all answers | discrete Gaussian |" in said


@pytest.mark.slow
def test_the_outputs_kept_in_it_are_of_this_notebook(executed):
    """The same lines but for numbers, which the noise changes."""

    def shape(text):
        return re.sub(r"[0-9][0-9.,e+-]*", "#", text)

    assert shape(printed(NOTEBOOK)) == shape(printed(executed))
