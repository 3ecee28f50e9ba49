"""Designs in a process of its own: the last ends are remembered, and each can be cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import pytest

from fitplug.errors import DesignError
from fitplug_explore import Outcome, Report, Target
from fitplug_explore.designer import Designer


def design(targets: Sequence[Target], report: Report) -> Outcome:
    """A design that does what its first target says, by the number of what it should do."""
    what = int(targets[0].value)
    if what == 2:
        raise DesignError("No plan. Relax the targets.")
    if what == 3:
        raise KeyError("CANARY")
    if what == 4:  # it notices a cancellation
        for step in range(1000):
            report(share=step / 1000)
            time.sleep(0.05)
    if what == 5:  # it does not
        time.sleep(60)
    if what == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    report(between=(1.0, 2.0))
    return Outcome(rho=float(os.getpid()), epsilon="1", gap="proven", groups=())


async def run(designer: Designer, what: float, seconds: float = 60) -> list[dict[str, Any]]:
    """The messages of a design, which is unwanted after some seconds."""
    end = time.monotonic() + seconds

    async def is_unwanted() -> bool:
        return time.monotonic() > end

    return [m async for m in designer.run((Target("std", what),), is_unwanted)]


@pytest.mark.slow
def test_a_design_of_each_end() -> None:
    async def use() -> None:
        designer = Designer(design)
        try:
            first = await run(designer, 1)
            assert first[0] == {"between": (1.0, 2.0)}
            process = first[1]["outcome"]["rho"]
            assert process != os.getpid()
            assert await run(designer, 1) == first[1:]  # remembered
            assert await run(designer, 2) == [{"error": "No plan. Relax the targets."}]
            (bug,) = await run(designer, 3)
            assert "KeyError" in str(bug)
            assert "CANARY" not in str(bug)

            started = time.monotonic()
            cancelled = await run(designer, 4, 0.5)
            assert cancelled[-1]["share"] > 0
            assert (await run(designer, 1.5))[-1]["outcome"]["rho"] == process
            assert time.monotonic() - started < 20

            assert await run(designer, 5, 0.5) == []
            fresh = (await run(designer, 1.6))[-1]["outcome"]["rho"]
            assert fresh != process  # one that does not notice was replaced
            assert time.monotonic() - started < 40

            (killed,) = await run(designer, 6)
            assert "was killed" in str(killed)
            assert "outcome" in (await run(designer, 1.7))[-1]
            assert await run(designer, 4, -1) == []  # unwanted before it began
        finally:
            designer.close()

    asyncio.run(use())
