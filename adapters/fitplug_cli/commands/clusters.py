"""Clients of the Dask cluster that a spec names."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fitplug.errors import FitplugError
from fitplug_cli.spec import Spec, SpecError

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_SECONDS = 10
"""How long to wait for a scheduler."""


@contextlib.contextmanager
def connect(spec: Spec) -> Iterator[Client | None]:
    """Connect to the cluster of a spec for the duration of the block; yield None without one.

    Raises:
        SpecError: The address is invalid, or the scheduler file cannot be read.
        FitplugError: No scheduler answers in time.
    """
    address = spec.data.cluster
    if address is None:
        yield None
        return
    if address.endswith(".json"):
        address = _read_scheduler_file(spec, address)
    with _open_client(spec, address) as client:
        yield client


def _read_scheduler_file(spec: Spec, file: str) -> str:
    """Return the address in a file that `dask scheduler --scheduler-file` wrote."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        address = json.loads((spec.path.parent / file).read_bytes())["address"]
        if isinstance(address, str):
            return address
    raise SpecError(
        f"{spec.path}: [data] cluster = {file!r} is not a readable scheduler file. Create it with "
        "`dask scheduler --scheduler-file`."
    )


def _open_client(spec: Spec, address: str) -> Client:
    """Open a client of the scheduler at an address."""
    from distributed import Client

    where = f"{spec.path}: [data] cluster = {address!r}"
    try:
        with _silence_logs():
            # A client would wait forever for an open port that never answers, so ask first.
            asyncio.run(asyncio.wait_for(_ask_scheduler(address), _CONNECT_SECONDS))
            return Client(address, timeout=_CONNECT_SECONDS)
    except (OSError, asyncio.TimeoutError):  # includes errors of name resolution and of Dask
        raise FitplugError(
            f"{where}: no Dask scheduler answered within {_CONNECT_SECONDS} s. Start the "
            "scheduler, or correct the address."
        ) from None
    except Exception:  # Dask raises errors of many types for a bad address
        if address.startswith(("tls://", "wss://")):
            raise SpecError(
                f"{where}: this machine has no usable TLS certificates for Dask. Set "
                "distributed.comm.tls in Dask's configuration."
            ) from None
        raise SpecError(
            f"{where} is not the address of a Dask scheduler. Write tcp://HOST:PORT."
        ) from None


async def _ask_scheduler(address: str) -> None:
    """Ask the scheduler at an address to identify itself; errors may have any type."""
    from distributed import Security, rpc

    arguments = Security().get_connection_args("client")
    async with rpc(address, timeout=_CONNECT_SECONDS, connection_args=arguments) as scheduler:
        await scheduler.identity()


@contextlib.contextmanager
def _silence_logs() -> Iterator[None]:
    """Silence logs in the block: Dask logs tracebacks of errors that are explained anyway."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
