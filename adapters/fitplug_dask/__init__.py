"""Exact counts of partitioned Parquet, Arrow and CSV files on a Dask scheduler.

    tables = fitplug_dask.count("data/state=*/", plan)

`count` finds the files (sources, stores, places, formats) and checks them (snapshot, headers),
lays out the tables to count jointly (layout), cuts the row groups into shares of work (shares),
counts each share where it lies (kernel: readers and pages read it; texts, codes and coders turn
values into cells, weights into records, tally counts them; the loops over rows are compiled) and
adds the results up (schedule). With `person=`, the rows of each person are brought together
(persons, siphash, shuffle) and at most k of them counted (selection); with `checkpoint=`, finished
shares are kept until all are (checkpoint). `survey` tells what counting would
take, and reads no row.
"""

from fitplug_dask.counting import count
from fitplug_dask.survey import Survey, survey

__all__ = ["Survey", "count", "survey"]


def __dir__() -> list[str]:
    """The public names alone: completion shows no modules that are not for users."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
