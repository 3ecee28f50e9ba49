"""Exact counts of partitioned Parquet, Arrow and CSV files on a Dask scheduler.

    tables = fp.count("data/state=*/", plan)

`count` counts. `preview` reports what a count would read and need, without reading any row. They
use these modules and packages, each of which imports only those earlier in this table:

| name | what it does |
|---|---|
| `_compat` | wraps all undocumented features of other libraries that this package uses |
| `compiled_loops` | holds the compiled loops that run over every row |
| `encryption` | encrypts confidential data that leave memory |
| `workers` | runs tasks on threads or on a cluster, and checks that workers run the same code |
| `sources` | finds the files behind a path, folder, glob or URL |
| `encoding` | turns column values, texts and folder names into codes of the domain |
| `files` | reads headers, takes the snapshot of all files, and reads their rows |
| `kernel` | chooses the joint tables, cuts the partitions, and counts one partition |
| `exchange` | shuffles pieces of data: from many inputs to many outputs |
| `persons` | with `person=`, brings the rows of each person together and keeps at most k |
| `sharding` | counts tables that do not fit into one process, a range of cells at a time |
| `request` | checks what to count and on how many threads, before it looks at any file |
| `preview` | reports what a count would read and need, and lists columns, without reading rows |
| `counting` | counts: from files and wanted tables to exact tables |
| `releases` | makes a release in parts, exactly once |
| `series` | makes a release period by period, each period once |

Only `releases` and `series` use fitplug_opendp. `fitplug.count`, `release`, `begin_series` and
`open_series` call this package.
"""

from fitplug_dask.counting import count
from fitplug_dask.preview import preview

__all__ = ["count", "preview"]


def __dir__() -> list[str]:
    """Return only the public names, so that completion does not list internal modules."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
