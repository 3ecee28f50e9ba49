"""A local page on which targets are agreed before any data are read.

Starlette and uvicorn serve it. Both are small and pure Python, and larger web frameworks are built
on them. The page itself is plain HTML. So it works offline, its fields keep the focus while numbers
change, and screen readers can read it.
"""

from fitplug_explore.server import explore
from fitplug_explore.session import (
    AlreadyExists,
    Budget,
    Group,
    GroupOutcome,
    Outcome,
    Report,
    Session,
    Target,
)

__all__ = [
    "AlreadyExists",
    "Budget",
    "Group",
    "GroupOutcome",
    "Outcome",
    "Report",
    "Session",
    "Target",
    "explore",
]


def __dir__() -> list[str]:
    """Return only the public names, so that completion does not list internal modules."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
