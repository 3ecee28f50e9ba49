"""Weights: how many records the rows of a column of weights stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.counts import WEIGHT
from fitplug_dask.encoding.column_codes import encode_column
from fitplug_dask.encoding.column_encoder import ColumnEncoder
from fitplug_dask.encoding.column_types import classify_type
from fitplug_dask.loops import locate


class WeightReader:
    """Reads batches of the column of weights as numbers of records."""

    def __init__(self, column: str, rows: int) -> None:
        """Allocate the memory of one batch.

        Args:
            column: The name of the column.
            rows: The largest number of rows of a batch.
        """
        self._column = column
        # With a stride of 1, the term of a dictionary's entry is its code: here, its weight.
        self._encoder = ColumnEncoder(WEIGHT, stride=1, outside=0)
        self._buffer = np.empty(rows, dtype=np.int64)

    def read(self, columns: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        """Return the number of records (n,) that each row stands for.

        Args:
            columns: Arrow arrays (n,) by name.

        Returns:
            The numbers, which are valid until the next call.
        """
        column = columns[self._column]
        if classify_type(column.type) == "integers" and not hasattr(column, "dictionary"):
            return encode_column(WEIGHT, column)
        weights = self._buffer[: len(column)]
        locate([self._encoder.make_lookup(column)], 0, weights)
        return weights
