"""Releases in parts: exact counts, noise, estimates and tables that need not fit into one process.

`release_source` makes a release exactly once, by the steps of `fitplug_opendp.publication`; this
package supplies the executor. The modules, each of which imports only earlier ones:

| module | what it does |
|---|---|
| `counts` | passes exact counts to tasks, and stores those that exceed a process, encrypted |
| `executor` | tests every worker, then draws each part once and writes the parts of tables |
| `releasing` | checks the arguments, and counts, here or on the workers: `release_source` |
"""

from fitplug_dask.releases.releasing import make_release, release_source

__all__ = ["make_release", "release_source"]
