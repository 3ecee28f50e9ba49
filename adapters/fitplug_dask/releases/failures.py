"""Failures of tasks: what is tried again, and the faults that the rest become.

A task returns a Fault for what a user can mend, as Dask would quote an exception with its data.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

from fitplug.errors import FitplugError
from fitplug_dask.kernel import OUT_OF_MEMORY, Fault
from fitplug_opendp.staging import RETRY

T = TypeVar("T")

_LASTING = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG}
_PAUSES = (0.1, 0.5, 2.0)


def report_faults(act: Callable[[], T], place: object) -> T | Fault:
    """Return what `act` returns. It is tried again if a store fails for a moment.

    Args:
        act: What may be done more than once.
        place: Where it reads and writes, for people.

    Returns:
        The result, or a Fault that names the place and what to do.
    """
    for pause in (*_PAUSES, None):
        try:
            return act()
        except MemoryError:
            return OUT_OF_MEMORY
        except OSError as error:
            if error.errno not in _LASTING and pause is not None:
                time.sleep(pause)
                continue
            why = (error.strerror or "cannot be read or written").lower()
            return Fault(f"{place}: {why}. {RETRY}", of_data=False)
        except FitplugError as error:  # its message names nothing that is confidential
            return Fault(str(error), of_data=False)
        except ImportError as error:
            return Fault(f"a worker lacks a library: {error}", of_data=False)
    raise AssertionError("the last pause is None")
