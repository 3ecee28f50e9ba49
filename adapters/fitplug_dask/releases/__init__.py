"""Releases in parts: exact counts, noise, estimates and tables, none of which fits one process.

`release` makes one exactly once. The modules, each of which imports only those before it:

| module | what it does |
|---|---|
| `staging` | keeps what is made until the release is published |
| `failures` | tries again where a store fails, and turns errors into faults |
| `stored_counts` | stores the exact counts that no process holds all of, encrypted |
| `jobs` | says what every task of a release knows |
| `exact_counts` | says where exact counts are, what seals them, and how they reach a task |
| `drawing` | draws the answers of a part, once |
| `publishing` | estimates and writes all tables, and puts the complete release in its place |
| `worker_checks` | tests every worker before the ledger is charged |
| `parted_release` | takes the steps, each from where an earlier run ended |
| `kept_secret` | keeps the secrets that a resumed run needs, apart from the counts |
| `counting_rows` | counts tables in this process, or slabs on the workers |
| `releasing` | checks what the caller gives, and counts: `release` |
"""

from fitplug_dask.releases.releasing import make_release, release
from fitplug_dask.releases.staging import Output

__all__ = ["Output", "make_release", "release"]
