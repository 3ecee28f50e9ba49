"""The checker of plan files that shares no code with fitplug, loaded as a module."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from tests.helpers.places import ROOT

CHECKER = ROOT / "tools" / "check_plan.py"


def load_checker() -> Any:
    """Load the file, which is in no package."""
    spec = importlib.util.spec_from_file_location(CHECKER.stem, CHECKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checker = load_checker()


def find_code(path: Path) -> int:
    """Check a plan file: 0 if all claims are proven, 1 if one is not, 3 if it is not covered."""
    return int(checker.find_result(str(path))[0])
