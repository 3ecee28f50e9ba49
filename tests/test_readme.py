"""The README's Python, run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import opendp.prelude as dp
import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def beside_the_examples(tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    yield
    dp.disable_features("contrib", "honest-but-curious")


def test_the_code_blocks_run(beside_the_examples, capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 3
    said: dict[str, object] = {}
    exec("\n".join(blocks), said)
    assert "certified" in capsys.readouterr().out
    assert said["ledger"].spent == said["plan"].rho == said["measurement"].map(1)
    children = said["release"].combine({"total": 1, "voting age": -1})
    assert abs(children.value - 5245) < 100
