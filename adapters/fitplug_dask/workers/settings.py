"""Settings: what operators set in the configuration of Dask, in a file or in the environment.

`fitplug.timeout` is `DASK_FITPLUG__TIMEOUT` in the environment, and `fitplug.rows-per-task` is
`DASK_FITPLUG__ROWS_PER_TASK`.
"""

from __future__ import annotations

from typing import Any

from dask import config
from dask.utils import parse_timedelta

from fitplug.errors import InputError

_TIMEOUT = "60s"


def read_timeout() -> float:
    """Return how many seconds a call waits for an answer, or a count for its first worker.

    Raises:
        InputError: The setting is no time above 0.
    """
    setting = config.get("fitplug.timeout", _TIMEOUT)
    try:
        seconds = float(parse_timedelta(setting, default="s"))
    except (TypeError, ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(f'the setting fitplug.timeout of Dask is {setting!r}; set it to "60s"')
    return seconds


def read_rows_per_task() -> int | None:
    """Return about how many rows a task reads at most, None if nobody has set it.

    Raises:
        InputError: The setting is no number of rows.
    """
    setting: Any = config.get("fitplug.rows-per-task", None)
    if setting is None:
        return None
    if isinstance(setting, bool) or not isinstance(setting, int) or setting < 1:
        raise InputError(
            f"the setting fitplug.rows-per-task of Dask is {setting!r}; set it to a whole number "
            "of rows, 1 or more"
        )
    return setting
