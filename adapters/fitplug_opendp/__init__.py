"""fitplug plans as OpenDP measurements, with zCDP accounting.

OpenDP is imported when a function here is called for the first time, not before.
"""

# The modules by task. The reference for users shows the docstring, so this is a comment.
#
# | modules | task |
# |---|---|
# | `_compat` | holds every contact with the internals of OpenDP |
# | `gaussian`, `noise_source` | draw the noise, compute its cost for a person, and check the plan |
# | `sampler_check`, `discrete_gaussian` | test the sampler against the exact distribution |
# | `releases` | makes a release in memory, or into a folder exactly once: `release_tables` |
# | `publication` | takes the steps of each release, wherever it goes and whoever draws it |
# | `folder_release` | is a release into a folder, to these steps |
# | `release_files`, `csv_tables` | write CSV tables, release.json and the review into that folder |
# | `release_request` | holds what is asked for, and finds its charge |
# | `executor` | draws noise and writes tables in this process, for those steps |
# | `output`, `staging` | hold its folder, what is staged, what is left |
# | `key_file` | keeps the secrets that later runs need, apart from the counts |
# | `count_checks` | says which rows the counts were made of, and checks what callers give |
# | `measurement`, `input_domains` | make a plan an OpenDP measurement, and its input domains |
# | `lazyframes` | counts Polars LazyFrames, as an OpenDP transformation |
# | `context`, `noise_scale` | serve queries of OpenDP's Context API, and scale their noise |
# | `accounting` | makes a plan an event of dp_accounting |

from fitplug_opendp.accounting import dp_event
from fitplug_opendp.context import as_query, preflight, register
from fitplug_opendp.input_domains import tables_domain
from fitplug_opendp.lazyframes import make_tables, then_tables
from fitplug_opendp.measurement import make_fitness_for_use, then_fitness_for_use

__all__ = [
    "as_query",
    "dp_event",
    "make_fitness_for_use",
    "make_tables",
    "preflight",
    "register",
    "tables_domain",
    "then_fitness_for_use",
    "then_tables",
]


def __dir__() -> list[str]:
    """List the public names, so that completion shows no modules that are not for users."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
