"""Adapters: functions of `fitplug` that need other libraries, such as Dask, OpenDP or Ibis.

The core imports no adapter. An adapter registers its functions as entry points of the group
`fitplug.adapters`. The functions here find them when called, and pass their arguments on.
"""

from fitplug.adapters.counting import count, preview
from fitplug.adapters.releasing import release
from fitplug.adapters.series import Series, begin_series, open_series

__all__ = ["Series", "begin_series", "count", "open_series", "preview", "release"]
