"""What tests of releases in parts share."""

from __future__ import annotations

import pytest

import fitplug as fp
from fitplug_dask.releases import drawing
from tests.helpers.audited_releases import Audit


@pytest.fixture
def audit(tmp_path_factory, monkeypatch):
    """An audit of all draws of this process."""
    monkeypatch.setattr(drawing, "draw_part", drawing.draw_part)  # is put back
    audit = Audit(tmp_path_factory.mktemp("audit") / "draws")
    audit.setup()
    return audit


@pytest.fixture
def ledger(tmp_path):
    return fp.Ledger(tmp_path / "budget.db", rho=1.0)
