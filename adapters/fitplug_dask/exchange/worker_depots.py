"""Worker depots: the pieces on the workers of a cluster, and how one worker fetches from another.

Pieces are not the results of Dask tasks, because a worker may write results to disk unencrypted.
They stay in a depot of the worker that made them, and go from there straight to the worker that
gathers them. A depot ends with its exchange: when the client ends it, or when the scheduler no
longer knows the exchange, for instance because the client is gone.

A worker that does not send its pieces within `fitplug.timeout`, the time that the client waits for
any answer, counts as lost: its pieces are made again, elsewhere or in a new depot there.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from fitplug_dask import _compat
from fitplug_dask.exchange.depot import Depot, Stretches
from fitplug_dask.exchange.tasks import Exchange, Missing, gather_outputs, split_into_depot
from fitplug_dask.kernel import Fault

_OPERATION = "fitplug_read_pieces"
_LEASE_SECONDS = 10
_STAY_SECONDS = 1
_TRIES = 3
_ASKING_SECONDS = 1
_AT_ONCE = 8
"""The most workers that one task fetches from at once."""
_ENDED = Fault("the exchange has ended", of_data=False)

_depots: WeakKeyDictionary[Any, dict[str, Depot]] = WeakKeyDictionary()
_lost: set[str] = set()
"""The depots of other workers that did not answer, so that no further task waits for them."""
_ended: set[str] = set()
"""The exchanges that the client has ended: tasks that still run store no pieces for them."""
_lock = threading.Lock()


@dataclass(frozen=True)
class Deposit:
    """The location of the pieces of one input.

    Attributes:
        address: The address of the worker.
        depot: The name of its depot.
        number: The number of the deposit there.
    """

    address: str
    depot: str
    number: int


@dataclass(frozen=True, repr=False)
class Manifest:
    """The locations of the pieces of all inputs.

    Attributes:
        inputs: By the address of the worker and the name of its depot: the number of the input of
            each deposit.
    """

    inputs: Mapping[tuple[str, str], Mapping[int, int]]

    @classmethod
    def create(cls, deposits: Sequence[Deposit]) -> Manifest:
        """Create the manifest of the deposits of all inputs, in their order."""
        inputs: dict[tuple[str, str], dict[int, int]] = {}
        for i, deposit in enumerate(deposits):
            inputs.setdefault((deposit.address, deposit.depot), {})[deposit.number] = i
        return cls(inputs)


def split_on_worker(plan: Exchange, given: Any, lost: frozenset[str]) -> Deposit | Fault:
    """Split an input and store its pieces on this worker.

    Args:
        plan: The exchange.
        given: The input.
        lost: The depots that other workers no longer read; nothing is added to them.
    """
    from distributed import get_worker

    worker = get_worker()
    depot = _open_depot(worker, plan, lost)
    if depot is None:
        return _ENDED
    number = split_into_depot(plan, given, depot)
    return number if isinstance(number, Fault) else Deposit(worker.address, depot.name, number)


def gather_on_worker(plan: Exchange, manifest: Manifest, outputs: Sequence[int]) -> Any:
    """Gather some outputs, as `gather_outputs` does, from the pieces of all workers.

    An output is gathered only if the pieces of all inputs are available.
    """
    from distributed import get_worker

    worker = get_worker()
    # Fetching takes at most this long, unless the event loop of this worker hangs.
    seconds = plan.timeout * (1 + math.ceil(len(manifest.inputs) / _AT_ONCE))

    def fetch(output: int) -> Mapping[int, memoryview] | Missing:
        reading = _fetch_output(worker, plan, manifest, output)
        try:
            fetched: Mapping[int, memoryview] | Missing = _compat.run_on_worker_loop(
                worker, reading, seconds
            )
        except concurrent.futures.TimeoutError:
            return Missing(frozenset(depot for _, depot in manifest.inputs))
        return fetched

    return gather_outputs(plan, outputs, fetch)


def stay_on_worker(plan: Exchange) -> None:
    """Run while this worker has pieces of an exchange, without occupying one of its threads."""
    from distributed import get_worker, secede

    worker = get_worker()
    depots = _depots.get(worker, {})
    secede()
    while _compat.is_running(worker) and (depot := depots.get(plan.name)) is not None:
        depot.dropped.wait(_STAY_SECONDS)


def drop_depot(exchange: str, dask_worker: Any) -> None:
    """Delete a worker's pieces of an exchange, and store no more of them."""
    with _lock:
        _ended.add(exchange)
        _forget(_depots.get(dask_worker, {}), exchange)


def _open_depot(worker: Any, plan: Exchange, lost: frozenset[str]) -> Depot | None:
    """Return the depot of an exchange on this worker, or None if the exchange has ended.

    A new depot is opened if there is none, or if other workers have given up the existing one.
    """
    with _lock:
        if plan.name in _ended:
            return None
        depots = _depots.get(worker)
        if depots is None:
            depots = _depots[worker] = {}
            _compat.add_worker_operation(worker, _OPERATION, _make_reader(depots))
        earlier = depots.get(plan.name)
        if earlier is None or earlier.name in lost:
            depots[plan.name] = plan.open_depot(worker.local_directory)
        depot = depots[plan.name]
    if earlier is None:
        _compat.spawn_on_worker_loop(worker, partial(_end_with_lease, worker, depots, plan))
    return depot


async def _end_with_lease(worker: Any, depots: dict[str, Depot], plan: Exchange) -> None:
    """Delete an exchange's pieces when the scheduler no longer knows it, or this task ends."""
    end = time.monotonic() + _LEASE_SECONDS
    try:
        while plan.name in depots and _compat.is_running(worker):
            await asyncio.sleep(0.5)
            if time.monotonic() > end:
                end += _LEASE_SECONDS
                try:
                    known = await asyncio.wait_for(
                        _compat.knows_key(worker, plan.lease), plan.timeout
                    )
                except Exception:  # the scheduler is away; if it stays away, this worker ends
                    continue
                if not known:
                    return
    finally:
        _forget(depots, plan.name)


def _forget(depots: dict[str, Depot], exchange: str) -> None:
    """Delete the pieces of an exchange."""
    depot = depots.pop(exchange, None)
    if depot is not None:
        depot.dropped.set()


def _make_reader(depots: Mapping[str, Depot]) -> Any:
    """Return the operation with which other workers read pieces of this one."""

    async def read_pieces(exchange: str, depot: str, output: int) -> dict[str, Any] | None:
        stretches = await _read(depots, exchange, depot, output)
        if stretches is None:
            return None
        return {
            "numbers": [number for number, _ in stretches],
            "lengths": [packed.nbytes for _, packed in stretches],
            "content": _compat.serialize_apart(b"".join(packed for _, packed in stretches)),
        }

    return read_pieces


async def _read(
    depots: Mapping[str, Depot], exchange: str, depot: str, output: int
) -> Stretches | None:
    """Return the packed pieces of one output in a depot, or None if they are lost."""
    local = depots.get(exchange)
    if local is None or local.name != depot:
        return None
    try:
        return await asyncio.to_thread(local.collect, output)
    except Exception:  # if the disk fails, the pieces are lost and made again elsewhere
        return None


async def _fetch_output(
    worker: Any, plan: Exchange, manifest: Manifest, output: int
) -> Mapping[int, memoryview] | Missing:
    """Fetch the packed pieces of one output from all workers."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def fetch_one(address: str, depot: str) -> Stretches | None:
        async with limit:
            if depot in _lost:
                return None
            fetching = _fetch_from(worker, address, plan.name, depot, output)
            try:
                pieces = await asyncio.wait_for(fetching, plan.timeout)
            except asyncio.TimeoutError:
                pieces = None
            if pieces is None:
                _lost.add(depot)
            return pieces

    places = list(manifest.inputs)
    answers = await asyncio.gather(*(fetch_one(*place) for place in places))
    pieces: dict[int, memoryview] = {}
    lost: set[str] = set()
    for place, stretches in zip(places, answers, strict=True):
        inputs = manifest.inputs[place]
        if stretches is None:
            lost.add(place[1])
        else:
            # Other deposits come from tasks that Dask ran again, so no result names them.
            pieces.update((inputs[n], packed) for n, packed in stretches if n in inputs)
    return Missing(frozenset(lost)) if lost else pieces


async def _fetch_from(
    worker: Any, address: str, exchange: str, depot: str, output: int
) -> Stretches | None:
    """Fetch the packed pieces of one output in one depot; None if they are lost."""
    if address == worker.address:
        return await _read(_depots.get(worker, {}), exchange, depot, output)
    what = {"exchange": exchange, "depot": depot, "output": output}
    for attempt in range(_TRIES):
        try:
            answer = await _ask(worker, address, what)
            break
        except Exception:  # a lost connection does not mean a lost worker
            await asyncio.sleep(0.2 * 4**attempt)
    else:
        answer = None
    if answer is None:
        return None
    content, start = memoryview(answer["content"]), 0
    stretches = []
    for number, length in zip(answer["numbers"], answer["lengths"], strict=True):
        stretches.append((number, content[start : start + length]))
        start += length
    return stretches


async def _ask(worker: Any, address: str, what: dict[str, Any]) -> dict[str, Any] | None:
    """Ask another worker for pieces. Return None if that worker is lost.

    Connecting to a worker that has ended takes half a minute to fail, and a connection to a machine
    that has stopped may hang forever. The scheduler knows sooner which workers are lost.
    """
    asking = asyncio.ensure_future(_compat.call_worker(worker, address, _OPERATION, what))
    try:
        while True:
            ended, _ = await asyncio.wait({asking}, timeout=_ASKING_SECONDS)
            if ended:
                return asking.result()
            if not await _compat.knows_worker(worker, address):
                return None
    finally:
        asking.cancel()
