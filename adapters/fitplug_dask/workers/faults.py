"""Faults: what tasks return when they fail.

A task returns a Fault and never raises: an exception of a reader may quote values, and a
scheduler would log it together with the arguments of the task.
"""

from __future__ import annotations

from dataclasses import dataclass

from fitplug.errors import FitplugError


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
