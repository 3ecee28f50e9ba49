"""Exchange: a shuffle, which splits many inputs into pieces and gathers the pieces of each output.

    results = run_exchange(Exchange(split, outputs), gather, inputs, client=runner)

It brings together the rows of each person, and the cells of tables too large for one process.
"""

from fitplug_dask.exchange.run import add_exchange, measure_memory, run_exchange
from fitplug_dask.exchange.tasks import Exchange

__all__ = [
    "Exchange",
    "add_exchange",
    "measure_memory",
    "run_exchange",
]
