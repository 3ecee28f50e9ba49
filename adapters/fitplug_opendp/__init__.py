"""fitplug plans as OpenDP measurements, with zCDP accounting.

OpenDP is imported when a function here is called for the first time, not before.
"""

# The modules by task. This is a comment because the users' reference shows the docstring.
#
# | modules | task |
# |---|---|
# | `_compat` | every use of OpenDP's internals |
# | `gaussian`, `noise_source` | the noise, its cost for a person, and the checks of the plan |
# | `sampler_check`, `discrete_gaussian` | the test of the sampler against the exact distribution |
# | `releases` | releases in memory, or into a folder exactly once: `release_tables` |
# | `publication` | the steps of every release |
# | `folder_release` | these steps for a release into a folder |
# | `release_files`, `csv_tables` | CSV tables, release.json and the review in that folder |
# | `release_request` | the request for a release, and its charge |
# | `executor` | drawing noise and writing tables in this process |
# | `output`, `staging` | the release folder, the staged answers, and what runs left behind |
# | `key_file` | the secrets that later runs need, kept apart from the counts |
# | `count_checks` | which rows the counts were made of, and checks of callers' counts |
# | `measurement`, `input_domains` | a plan as an OpenDP measurement, and its input domains |
# | `lazyframes` | counting Polars LazyFrames, as an OpenDP transformation |
# | `context`, `noise_scale` | queries of OpenDP's Context API, and the scale of their noise |
# | `accounting` | a plan as an event of dp_accounting |

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
    """List the public names, so that completion shows no internal modules."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
