"""Faults: what tasks return when they fail.

A task returns a Fault and never raises: an exception of a reader may quote values, and a
scheduler would log it together with the arguments of the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from fitplug.errors import DataError, FitplugError

T = TypeVar("T")


@dataclass(frozen=True)
class Fault:
    """Why a task failed.

    Attributes:
        message: A sentence that reveals nothing that rows hold.
        of_data: Whether the files are at fault, and not the machines.
    """

    message: str
    of_data: bool = True


class CheckError(FitplugError):
    """A check fails that counting makes of itself. Its words tell nothing of rows.

    A task returns it as a Fault of the machines.
    """


OUT_OF_MEMORY = Fault(
    "counting ran out of memory; use fewer workers, or fewer or coarser attributes", of_data=False
)


def raise_fault(result: T | Fault) -> T:
    """Return the result if it is no fault.

    Raises:
        DataError: A file is at fault.
        FitplugError: The machines are at fault.
    """
    if isinstance(result, Fault):
        raise DataError(result.message) if result.of_data else FitplugError(result.message)
    return result
