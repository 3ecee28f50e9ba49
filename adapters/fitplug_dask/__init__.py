"""Exact counts of partitioned Parquet, Arrow and CSV files on a Dask scheduler.

    tables = fp.count("data/state=*/", plan)

`count` counts, and `preview` tells what counting would take and reads no row. They use these
modules and packages, each of which imports only those that come earlier in this table:

| name | what it does |
|---|---|
| `_compat` | holds everything undocumented that is used of other libraries |
| `compiled_loops` | does what is done for every row, compiled |
| `encryption` | encrypts what leaves memory |
| `workers` | runs tasks on threads or on a cluster, whose code it checks |
| `sources` | finds the files that a path, folder, glob or URL means |
| `encoding` | turns values of columns, texts and folder names into codes of the domain |
| `files` | reads headers, takes the snapshot of all files, and reads their rows |
| `kernel` | chooses the joint tables, cuts the partitions, and counts one partition |
| `exchange` | brings together what many inputs have for many outputs |
| `persons` | with `person=`, brings the rows of each person together and keeps at most k |
| `sharding` | counts tables larger than a process in ranges of their cells |
| `request` | checks what to count, and on how many threads, before any file is looked at |
| `preview` | tells what a count would read and take, and lists columns, without reading any row |
| `counting` | counts: from files and wanted tables to exact tables |
| `releases` | makes a release in parts, exactly once |
| `series` | makes a release period by period, each period once |

`releases` and `series` alone know fitplug_opendp. `fitplug.count`, `release`, `begin_series` and
`open_series` call what is here.
"""

from fitplug_dask.counting import count
from fitplug_dask.preview import preview

__all__ = ["count", "preview"]


def __dir__() -> list[str]:
    """Return the public names only, so that completion shows no modules that users do not need."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
