"""Weights: how many records the rows of a column of weights stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fitplug.counts import WEIGHT
from fitplug.domain import Attribute
from fitplug_dask.coders import Coder
from fitplug_dask.codes import codes_of, kind
from fitplug_dask.loops import locate

_WEIGHT = cast(Attribute, WEIGHT)  # read as an attribute is, though it has no cells


class Weigher:
    """Turns batches of the column of weights into numbers of records.

    column: its name; rows: most of a batch.
    """

    def __init__(self, column: str, rows: int) -> None:
        self._column = column
        # With a stride of 1, the term of a dictionary's entry is its code: here, its weight.
        self._coder = Coder(_WEIGHT, stride=1, outside=0)
        self._own = np.empty(rows, dtype=np.int64)

    def weigh(self, columns: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        """Records (n,) that each row stands for, valid until the next call; columns: Arrow arrays
        (n,) by name.
        """
        column = columns[self._column]
        if kind(column.type) == "integers" and not hasattr(column, "dictionary"):
            return codes_of(_WEIGHT, column)
        weights = self._own[: len(column)]
        locate([self._coder.lookup(column)], 0, weights)
        return weights
