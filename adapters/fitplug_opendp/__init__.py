"""fitplug plans as OpenDP measurements, with zCDP accounting.

OpenDP is imported when a function here is called for the first time, not before.
"""

# The modules by task. The reference for users shows the docstring, so this is a comment.
#
# | modules | task |
# |---|---|
# | `_compat` | holds every contact with the internals of OpenDP |
# | `gaussian`, `noise_source` | draw the noise, and compute its cost for a person |
# | `part_noise` | draws the noise of a part of the answers, for releases in parts |
# | `sampler_check`, `discrete_gaussian` | test the sampler against the exact distribution |
# | `memory_release` | makes a release in memory: `release` |
# | `folder_release` | makes a release into a folder exactly once: `publish` |
# | `publication`, `release_folder`, `staged_answers` | hold its steps, its folder and its answers |
# | `release_request`, `release_charge` | hold what is asked for, and the charge in the ledger |
# | `counted_rows` | says which rows the counts were made of |
# | `measurement`, `input_domains` | make a plan an OpenDP measurement, and its input domains |
# | `lazyframes`, `lazyframe_counts` | count Polars LazyFrames, as an OpenDP transformation |
# | `context`, `noise_scale` | serve queries of OpenDP's Context API, and scale their noise |
# | `accounting` | makes a plan an event of dp_accounting |
# | `input_checks`, `folder_checks` | check what callers give, and the paths of release folders |

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
