"""fitplug plans as OpenDP measurements, with zCDP accounting.

OpenDP is imported when a function here is called for the first time, not before.
"""

from fitplug_opendp.accounting import dp_event
from fitplug_opendp.context import as_query, preflight, register
from fitplug_opendp.folder_release import publish
from fitplug_opendp.input_domains import tables_domain
from fitplug_opendp.lazyframes import make_tables, then_tables
from fitplug_opendp.measurement import make_fitness_for_use, then_fitness_for_use
from fitplug_opendp.memory_release import release

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
    """List the public names, so that completion shows no modules that are not for users."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
