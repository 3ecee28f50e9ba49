"""Designs in a separate process, so that the page stays responsive and can cancel them."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from fitplug.errors import FitplugError
from fitplug_explore.session import Outcome, Report, Target

Message: TypeAlias = dict[str, Any]
"""What a design reports: `share` and perhaps `between`, or at its end `outcome`, `error` or
`cancelled`."""

_ENDS = {"outcome", "error", "cancelled"}
_CACHED = 64
_GRACE = 0.5
"""Seconds after which a process that does not notice a cancellation is killed."""


class _Cancelled(Exception):  # noqa: N818 - no error
    """The page no longer needs this design."""


class Designer:
    """A process that makes one design at a time, and remembers the last outcomes.

    Args:
        design: See `Session.design`.
    """

    def __init__(self, design: Callable[[Sequence[Target], Report], Outcome]) -> None:
        self._design = design
        self._lock = asyncio.Lock()
        self._outcomes: OrderedDict[tuple[Target, ...], Message] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the server's threads
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._design), daemon=True)
        self._process.start()
        theirs.close()

    async def run(
        self, targets: tuple[Target, ...], is_unwanted: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[Message]:
        """Design a plan. The design is cancelled if the caller leaves the iteration.

        Args:
            targets: The target of each group.
            is_unwanted: Whether the design should be cancelled; it is asked several times a second.

        Yields:
            Messages, of which the last is an end.
        """
        messages: asyncio.Queue[Message] = asyncio.Queue()
        cancelled = asyncio.Event()
        # The caller may be cancelled at any await. Only this task speaks to the process.
        task = asyncio.create_task(self._work(targets, messages, cancelled))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while not await is_unwanted():
                try:
                    message = await asyncio.wait_for(messages.get(), 0.1)
                except (TimeoutError, asyncio.TimeoutError):
                    continue
                yield message
                if not _ENDS.isdisjoint(message):
                    return
        finally:
            cancelled.set()

    async def _work(
        self,
        targets: tuple[Target, ...],
        messages: asyncio.Queue[Message],
        cancelled: asyncio.Event,
    ) -> None:
        """Make a design, once it is its turn, and pass its messages on."""
        async with self._lock:
            if targets in self._outcomes:
                self._outcomes.move_to_end(targets)
                messages.put_nowait(self._outcomes[targets])
                return
            try:
                if cancelled.is_set():
                    return
                self._connection.send(targets)
                while not cancelled.is_set():
                    if not await asyncio.to_thread(self._connection.poll, 0.1):
                        continue
                    message: Message = self._connection.recv()
                    if "outcome" in message:
                        self._remember(targets, message)
                    messages.put_nowait(message)
                    if not _ENDS.isdisjoint(message):
                        return
                await asyncio.to_thread(self._cancel)
            except (EOFError, OSError):  # the process was killed, perhaps for its memory
                self.close()
                self._start()
                text = "The design process was killed. Free some memory and change a target."
                messages.put_nowait({"error": text})

    def _remember(self, targets: tuple[Target, ...], message: Message) -> None:
        self._outcomes[targets] = message
        if len(self._outcomes) > _CACHED:
            self._outcomes.popitem(last=False)

    def _cancel(self) -> None:
        """Cancel the design that runs; a process that does not notice is replaced."""
        self._connection.send(None)
        end = time.monotonic() + _GRACE
        while self._connection.poll(max(end - time.monotonic(), 0)):
            if not _ENDS.isdisjoint(self._connection.recv()):
                return
        self.close()
        self._start()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._connection.close()


def _serve(connection: Connection, design: Callable[[Sequence[Target], Report], Outcome]) -> None:
    """Make the requested designs until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this

    def report(**known: Any) -> None:
        if connection.poll():
            raise _Cancelled
        connection.send(known)

    while True:
        try:
            targets = connection.recv()
        except (EOFError, OSError):
            return
        if targets is None:  # the cancellation of a design that had just ended
            continue
        connection.send(_run(design, targets, report))


def _run(
    design: Callable[[Sequence[Target], Report], Outcome], targets: Sequence[Target], report: Report
) -> Message:
    """Make one design and return its end."""
    try:
        return {"outcome": asdict(design(targets, report))}
    except _Cancelled:
        return {"cancelled": True}
    except FitplugError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "Out of memory. Free some memory and change a target."}
    except Exception as error:  # the page shows it, and the server continues
        return {"error": f"Unexpected {type(error).__name__}. This is a bug; please report it."}
