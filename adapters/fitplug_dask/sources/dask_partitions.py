"""Dask partitions: the parts of a dask.dataframe, and delayed frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fitplug.errors import DataError
from fitplug_dask.sources.file_search import FoundFile
from fitplug_dask.sources.formats import Format
from fitplug_dask.sources.locations import UNTRACKED


@dataclass(frozen=True, repr=False)
class DaskPartition:
    """The location of one partition, which a task computes.

    A partition that is computed again, for instance because a worker was lost, must hold the same
    rows: what computes it may depend on nothing that changes.

    Attributes:
        path: What the partition is called in messages.
        delayed: A Delayed of Dask whose value is a frame of pandas, Polars or Arrow.
        columns: What each column holds: "strings", "integers", or "" if that is known only when
            rows are read. None if the columns are not known before.
        options: None, as it lies in no store.
        listed: None, as no store listed it.
    """

    path: str
    delayed: Any
    columns: Mapping[str, str] | None
    options: None = None
    listed: None = None

    def __repr__(self) -> str:
        return f"DaskPartition({self.path!r})"

    def read_state(self) -> tuple[int, str]:
        """Return a size, which means nothing, and a stamp that says that changes are not seen."""
        return 1, f"{UNTRACKED}{self.path}"

    def compute(self) -> Any:
        """Compute the frame, in this thread or, within a task of a cluster, on the cluster."""
        try:
            from distributed import get_worker, worker_client

            from fitplug_dask.workers import await_result  # it imports Dask

            get_worker()
        except (ImportError, ValueError):  # no task of a cluster
            from dask import get

            # The function and not its name, for which old versions warn beside a client.
            return self.delayed.compute(scheduler=get)
        with worker_client() as client:
            return await_result(client, client.compute(self.delayed))


def find_dask_partitions(source: Any) -> list[FoundFile]:
    """Find the partitions of a dask.dataframe, a Delayed, or a sequence of Delayed.

    Raises:
        DataError: It is another collection of Dask.
    """
    from dask.delayed import Delayed

    columns: dict[str, str] | None = None
    if isinstance(source, Delayed):
        delayed = [source]
    elif isinstance(source, Sequence):
        delayed = list(source)
    elif hasattr(source, "to_delayed") and hasattr(source, "columns"):
        columns = {str(name): _classify_dtype(dtype) for name, dtype in source.dtypes.items()}
        delayed = list(source.to_delayed())
    else:
        raise DataError(
            f"the data must be a dask.dataframe or delayed frames, not {type(source).__name__}"
        )
    return [
        FoundFile(
            f"partition {number}",
            (),
            DaskPartition(f"partition {number}", _cull(one, Delayed), columns),
            Format.DELAYED,
        )
        for number, one in enumerate(delayed)
    ]


def _classify_dtype(dtype: Any) -> str:
    """Return what a column of pandas holds by its type alone."""
    if getattr(dtype, "kind", "") in ("i", "u"):
        return "integers"
    return "strings" if getattr(dtype, "na_value", None) is not None and dtype == "string" else ""


def _cull(one: Any, make: Any) -> Any:
    """Return a Delayed with only the tasks that it needs, so that each travels with its own."""
    from dask.optimization import cull

    graph: Mapping[Any, Any] = dict(one.__dask_graph__())
    needed, _ = cull(graph, [one.key])
    return make(one.key, needed)
