"""A local page on which targets are negotiated before any data are read.

Starlette and uvicorn serve it. They are small, pure Python and what larger frameworks for pages are
built on; the page itself is plain HTML, so that it works offline, its fields keep the focus while
numbers change, and a screen reader finds what HTML means.
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
