"""Encoding: from the values of Arrow columns, text and folder names to the codes of the domain.

Values outside the domain, of whatever spelling, raise no error: what rows hold may not show in
errors.
"""

from fitplug_dask.encoding.column_encoder import ColumnEncoder
from fitplug_dask.encoding.column_types import (
    classify_person_type,
    classify_type,
    explain_mismatch,
)
from fitplug_dask.encoding.text_values import describe_values, encode_text
from fitplug_dask.encoding.weights import WeightReader

__all__ = [
    "ColumnEncoder",
    "WeightReader",
    "classify_person_type",
    "classify_type",
    "describe_values",
    "encode_text",
    "explain_mismatch",
]
