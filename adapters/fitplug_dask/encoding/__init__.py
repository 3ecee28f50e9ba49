"""Encoding: from the values of Arrow columns, text and folder names to the codes of the domain.

Values outside the domain raise no error, however they are written, because errors must not reveal
what rows contain.
"""

from fitplug_dask.encoding.array_memory import (
    compact_batch,
    join_batches,
    view_numbers,
    view_stretches,
)
from fitplug_dask.encoding.column_encoder import CodeReader, ColumnEncoder, convert_to_days
from fitplug_dask.encoding.column_types import (
    classify_person_type,
    classify_type,
    explain_mismatch,
    explain_person_mismatch,
    explain_value_mismatch,
    holds_integers_only,
)
from fitplug_dask.encoding.stored_values import (
    convert_persons,
    convert_values,
    encode_folder_texts,
    is_text,
    is_zoned,
    needs_conversion,
    parse_text,
    spell_persons,
)
from fitplug_dask.encoding.text_forms import MOST_ROWS, explain_forms, find_forms

__all__ = [
    "MOST_ROWS",
    "CodeReader",
    "ColumnEncoder",
    "classify_person_type",
    "classify_type",
    "compact_batch",
    "convert_persons",
    "convert_to_days",
    "convert_values",
    "encode_folder_texts",
    "explain_forms",
    "explain_mismatch",
    "explain_person_mismatch",
    "explain_value_mismatch",
    "find_forms",
    "holds_integers_only",
    "is_text",
    "is_zoned",
    "join_batches",
    "needs_conversion",
    "parse_text",
    "spell_persons",
    "view_numbers",
    "view_stretches",
]
