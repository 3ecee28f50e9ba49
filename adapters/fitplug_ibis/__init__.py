"""Counting in databases, by Ibis: the rows are grouped where they are, and only counts leave."""

from fitplug_ibis.counting import count

__all__ = ["count"]


def __dir__() -> list[str]:
    """List the public names, so that completion shows no modules that are not for users."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
