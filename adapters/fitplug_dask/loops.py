"""Loops: what is done for every row, compiled where fitplug was installed with a C compiler."""

from __future__ import annotations

import sys

from fitplug_dask.numpy_loops import Lookup

try:
    from fitplug_dask.compiled_loops import (
        add_shares,
        add_weights,
        add_weights_of_pairs,
        encode_numbers,
        hash_integers,
        hash_messages,
        hash_stretches,
        increment,
        increment_pairs,
        locate,
        select_rows,
        sort_records,
    )

    COMPILED = True
except ImportError:
    from fitplug_dask.numpy_loops import (
        add_shares,
        add_weights,
        add_weights_of_pairs,
        encode_numbers,
        increment,
        increment_pairs,
        locate,
    )

    COMPILED = False

if not COMPILED or sys.byteorder != "little":  # the compiled hashes read words as they lie there
    from fitplug_dask.numpy_person_loops import (
        hash_integers,
        hash_messages,
        hash_stretches,
        select_rows,
        sort_records,
    )

__all__ = [
    "COMPILED",
    "Lookup",
    "add_shares",
    "add_weights",
    "add_weights_of_pairs",
    "encode_numbers",
    "hash_integers",
    "hash_messages",
    "hash_stretches",
    "increment",
    "increment_pairs",
    "locate",
    "select_rows",
    "sort_records",
]
