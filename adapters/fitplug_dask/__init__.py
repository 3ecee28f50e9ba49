"""Exact counts of partitioned Parquet, Arrow and CSV files on a Dask scheduler.

    tables = fitplug_dask.count("data/state=*/", plan)

`count` counts, `survey` tells what counting would take and reads no row. The packages below them,
in the order in which a count goes through them, import only packages above themselves in this
table:

| package | what it does |
|---|---|
| `loops` | what is done for every row: compiled, or in NumPy |
| `sources` | finds the files that a path, folder, glob or URL means |
| `encoding` | turns values of columns, texts and folder names into codes of the domain |
| `files` | reads headers, takes the snapshot of all files, and reads their rows |
| `kernel` | chooses the joint tables, cuts the partitions, and counts one partition |
| `scheduling` | runs the tasks on threads or on a cluster, and adds up what they return |
| `persons` | with `person=`, brings the rows of each person together and keeps at most k |
| `checkpoint` | with `checkpoint=`, keeps the counts of finished partitions until all are done |
"""

from fitplug_dask.counting import count
from fitplug_dask.survey import Survey, survey

__all__ = ["Survey", "count", "survey"]


def __dir__() -> list[str]:
    """Return the public names only, so that completion shows no modules that users do not need."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
