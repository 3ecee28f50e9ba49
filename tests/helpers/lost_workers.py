"""Workers of a local cluster that are killed."""

from __future__ import annotations

import os
import random
import signal

from distributed import LocalCluster, Status


def kill_one(cluster: LocalCluster, rng: random.Random) -> bool:
    """Kill a worker if both are at work: of two that restart at once, Dask may lose one."""
    processes = [nanny.process for nanny in cluster.workers.values() if nanny.process]
    running = [p.pid for p in processes if p.status == Status.running and p.is_alive()]
    if len(running) == 2:
        os.kill(rng.choice(running), signal.SIGKILL)
    return len(running) == 2
