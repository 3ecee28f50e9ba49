"""Weights: how many records the rows of a column of weights stand for."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fitplug.domain import Attribute
from fitplug.rows import WEIGHT
from fitplug_dask.coders import Coder
from fitplug_dask.codes import codes_of, kind
from fitplug_dask.loops import locate


class Weigher:
    """Turns batches of one column into numbers of records; a dictionary is looked up once.

    rows: most of a batch.
    """

    def __init__(self, rows: int) -> None:
        # A cell that is as many as there are records: then the coder's terms are the weights.
        self._coder = Coder(cast(Attribute, WEIGHT), stride=1, outside=0)
        self._own = np.empty(rows, dtype=np.int64)

    def weigh(self, column: Any) -> npt.NDArray[np.int64]:
        """Records (n,) of each row of an Arrow array (n,), valid until the next call."""
        if kind(column.type) == "integers" and not hasattr(column, "dictionary"):
            return codes_of(cast(Attribute, WEIGHT), column)
        weights = self._own[: len(column)]
        locate([self._coder.lookup(column)], 0, weights)
        return weights
