"""fitplug plans as OpenDP measurements, with zCDP accounting.

OpenDP itself is imported when a function here is first called, not before.
"""

from fitplug_opendp.measurement import make_fitness_for_use, then_fitness_for_use
from fitplug_opendp.publish import release

__all__ = ["make_fitness_for_use", "release", "then_fitness_for_use"]
