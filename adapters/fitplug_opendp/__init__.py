"""fitplug plans as OpenDP measurements, with zCDP accounting.

OpenDP itself is imported when a function here is first called, not before.
"""

from fitplug_opendp.accounting import dp_event
from fitplug_opendp.context import as_query, preflight, register
from fitplug_opendp.frames import make_tables, then_tables
from fitplug_opendp.measurement import make_fitness_for_use, then_fitness_for_use
from fitplug_opendp.noisy_release import release
from fitplug_opendp.publication import publish
from fitplug_opendp.spaces import tables_domain

__all__ = [
    "as_query",
    "dp_event",
    "make_fitness_for_use",
    "make_tables",
    "preflight",
    "publish",
    "register",
    "release",
    "tables_domain",
    "then_fitness_for_use",
    "then_tables",
]


def __dir__() -> list[str]:
    """The public names alone: completion shows no modules that are not for users."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
