"""Exact counts of partitioned Parquet on a Dask scheduler.

    tables = fitplug_dask.count("data/state=*/", plan)

`count` finds and checks the files (sources, snapshot), lays out the tables to count jointly
(layout), cuts the row groups into shares of work (shares), counts each share where it lies
(codes, kernel) and adds the results up (schedule).
"""

from fitplug_dask.counting import count

__all__ = ["count"]
