"""Loops: what is done for every row, compiled where fitplug was installed with a C compiler."""

from __future__ import annotations

from fitplug_dask.numpy_loops import Lookup

try:
    from fitplug_dask.compiled_loops import (
        add_weights,
        add_weights_of_pairs,
        increment,
        increment_pairs,
        locate,
    )

    COMPILED = True
except ImportError:
    from fitplug_dask.numpy_loops import (
        add_weights,
        add_weights_of_pairs,
        increment,
        increment_pairs,
        locate,
    )

    COMPILED = False

__all__ = [
    "COMPILED",
    "Lookup",
    "add_weights",
    "add_weights_of_pairs",
    "increment",
    "increment_pairs",
    "locate",
]
