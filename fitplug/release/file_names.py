"""Names of the files in a release folder."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fitplug.workload import Workload

PLAN, ANSWERS = "plan.npz", "answers.npz"
_RESERVED = ("release", "plan", "answers", "review")


def name_files(workload: Workload) -> Mapping[str, str]:
    """Choose a file name, without its ending, for each group: its own name in plain letters."""
    names: dict[str, str] = {}
    taken = set(_RESERVED)
    for group in workload.names:
        base = re.sub(r"[^A-Za-z0-9]+", "_", group).strip("_").lower()[:80] or "group"
        name, number = base, 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        names[group] = name
        taken.add(name)
    return names
