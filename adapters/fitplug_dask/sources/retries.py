"""Retries: requests to a store that fail in passing are made again, later and later."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from fitplug_dask.sources.store_errors import TransientError, guard_secrets

T = TypeVar("T")

_ATTEMPTS = 8
_FIRST_WAIT_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 10.0
_LONGEST_SECONDS = 180.0
"""After so many seconds no further attempt begins, as clients make attempts of their own, too."""


def retry(act: Callable[[], T]) -> T:
    """Return what a request to a store returns; a transient error leads to another attempt.

    The waits double. Each is drawn between half of its length and all of it, so that many threads
    that a store turned away do not come back at the same moment.

    Raises:
        TransientError: All attempts failed in passing.
        StoreError: As by `guard_secrets`, at once.
        FileNotFoundError: As by `guard_secrets`, at once.
    """
    begun = time.monotonic()
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return guard_secrets(act)
        except TransientError:
            if attempt == _ATTEMPTS or time.monotonic() - begun > _LONGEST_SECONDS:
                raise
        wait = min(_FIRST_WAIT_SECONDS * 2 ** (attempt - 1), _LONGEST_WAIT_SECONDS)
        time.sleep(wait * random.uniform(0.5, 1.0))
    raise AssertionError("the last attempt returns or raises")
