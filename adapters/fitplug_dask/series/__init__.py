"""Series: the releases of one plan, drawn period by period as data arrive, and charged once.

`begin_series` charges a series, and `open_series` continues it. The modules, each of which imports
only earlier ones:

| module | what it does |
|---|---|
| `counts` | extracts and seals the counts of one period, and computes exact answers from them |
| `folders` | reads and writes the record of a series, and the folders of its periods |
| `period` | publishes one period, drawn once |
| `series` | draws one period after another, each once: `Series` |
| `beginning` | charges and opens a series: `begin_series`, `open_series` |
"""

from fitplug_dask.series.beginning import begin_series, open_series
from fitplug_dask.series.series import Series

__all__ = ["Series", "begin_series", "open_series"]
