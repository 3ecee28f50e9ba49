"""Exchange: what many inputs have for many outputs, brought together output by output.

    results = run_exchange(Exchange(split, gather, outputs), inputs, client=client)

The rows of each person are brought together so, and the cells of tables that no process holds.
"""

from fitplug_dask.exchange.memory import MEMORY_SHARE, measure_memory, read_memory
from fitplug_dask.exchange.run import Exchange, add_exchange, run_exchange

__all__ = [
    "MEMORY_SHARE",
    "Exchange",
    "add_exchange",
    "measure_memory",
    "read_memory",
    "run_exchange",
]
