"""Scripts that fork processes, and kill them at a call of a function of ours, whichever it is.

A script runs in a process of its own: imports are done once, and pytest's may have threads by now.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fitplug as fp

FORKING = """
import json, os, signal, sys
from pathlib import Path

root = Path(sys.argv[1])

def fork(work):
    child = os.fork()
    if not child:
        code = 1
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return child

def wait(child):
    status = os.waitpid(child, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

def kill_at(point, ours, act):
    '''Act, and be killed at this call of a function in files of these names. Returns the number of
    such calls if there are fewer.'''
    calls = 0
    def trace(frame, event, argument):
        nonlocal calls
        if event in ("call", "c_call") and any(o in frame.f_code.co_filename for o in ours):
            calls += 1
            if calls == point:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(trace)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls

def say(value):
    os.write(1, (json.dumps(value) + "\\n").encode())
"""


def run_script(script: str, root: Path, *arguments: str, timeout: int) -> list[Any]:
    """Run a script after FORKING, in a process of its own; returns what it says."""
    source = Path(fp.__file__).parents[1]
    ran = subprocess.run(
        [sys.executable, "-c", FORKING + script, str(root), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": f"{source}:{source / 'adapters'}"},
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]
