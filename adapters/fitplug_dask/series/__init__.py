"""Series: the releases of one plan, drawn period by period as data arrive, and charged once.

`begin_series` charges a series, and `open_series` continues it. The modules, each of which imports
only those before it:

| module | what it does |
|---|---|
| `counts` | takes the counts of one period, seals them, and computes the exact answers from them |
| `folders` | says what a series is, keeps its answers, and puts a period into its place |
| `period` | makes a period a publication, drawn once |
| `series` | draws one period after another, each once: `Series` |
| `beginning` | charges and opens a series: `begin_series`, `open_series` |
"""

from fitplug_dask.series.beginning import begin_series, open_series
from fitplug_dask.series.series import Series

__all__ = ["Series", "begin_series", "open_series"]
