"""What is touched of OpenDP beyond its documents, each with the reason; tests notice changes.

LazyFrameQuery.query, .polars_plan: a query on a LazyFrame leads every attribute to Polars, and
    never asks the constructors that are registered. Its own `resolve` reads these two.
LazyFrameQuery itself: a method of the class is found where Polars has no attribute of the name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def parts_of(query: Any) -> tuple[Any, Any]:
    """The Query and the Polars plan inside a LazyFrameQuery."""
    inner = object.__getattribute__(query, "_query")
    return inner, object.__getattribute__(query, "polars_plan")


def add_to_frames(name: str, method: Callable[..., Any]) -> None:
    """Let queries on LazyFrames have this method. Raises ValueError if they have another."""
    from opendp.extras.polars import LazyFrameQuery

    held = getattr(LazyFrameQuery, name, method)
    if held is not method:
        raise ValueError(f"queries on LazyFrames have another {name!r} already")
    setattr(LazyFrameQuery, name, method)
