"""Exchange: what many inputs have for many outputs, brought together output by output.

    results = run_exchange(Exchange(split, outputs), gather, inputs, client=runner)

The rows of each person are brought together so, and the cells of tables that no process holds.
"""

from fitplug_dask.exchange.run import add_exchange, measure_memory, run_exchange
from fitplug_dask.exchange.tasks import Exchange

__all__ = [
    "Exchange",
    "add_exchange",
    "measure_memory",
    "run_exchange",
]
