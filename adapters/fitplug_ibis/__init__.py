"""Counting in databases with Ibis: the database groups the rows, and only counts leave it."""

from fitplug_ibis.counting import count

__all__ = ["count"]


def __dir__() -> list[str]:
    """Return only the public names, so that completion does not list internal modules."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
