"""Code reader: the codes of a column that are numbers rather than cells: weights and measures."""

from __future__ import annotations

from typing import Any

import numpy as np

from fitplug.domain import OUTSIDE, Codes, Encoder, Measure
from fitplug_dask import loops
from fitplug_dask.encoding.column_codes import encode_column, encode_measure
from fitplug_dask.encoding.column_encoder import ColumnEncoder
from fitplug_dask.encoding.column_types import classify_type


class CodeReader:
    """Reads batches of one column as codes, of which there may be too many for a table of them."""

    def __init__(self, attribute: Encoder, rows: int) -> None:
        """Allocate the memory of one batch.

        Args:
            attribute: The attribute whose values the column holds, or what reads weights.
            rows: The largest number of rows of a batch.
        """
        self._attribute = attribute
        # With a stride of 1, the term of a value is its code.
        self._encoder = ColumnEncoder(attribute, stride=1, outside=OUTSIDE)
        self._buffer = np.empty(rows, dtype=np.int64)

    def read(self, column: Any) -> Codes:
        """Return the codes (n,) of an Arrow array (n,), which are valid until the next call."""
        codes = self._buffer[: len(column)]
        if classify_type(column.type) == "null":
            codes.fill(self._attribute.null_code)
        elif self._encoder.has_table(column.type):
            loops.locate([self._encoder.make_lookup(column)], 0, codes)
        elif isinstance(self._attribute, Measure):
            encode_measure(self._attribute, column, codes)
        else:
            codes = encode_column(self._attribute, column)
        return codes
