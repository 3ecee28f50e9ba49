"""Releases in parts: exact counts, noise, estimates and tables, none of which fits one process.

`release_source` makes one exactly once, by the steps of `fitplug_opendp.publication`, to which this
package hands the executor. The modules, each of which imports only those before it:

| module | what it does |
|---|---|
| `counts` | says where exact counts are, stores those that no process holds, encrypted |
| `executor` | tests every worker, then draws each part once and writes the parts of tables |
| `releasing` | checks what the caller gives, and counts, here or on the workers: `release_source` |
"""

from fitplug_dask.releases.releasing import make_release, release_source

__all__ = ["make_release", "release_source"]
