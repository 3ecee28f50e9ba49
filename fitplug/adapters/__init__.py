"""Adapters: what `fitplug` does with other libraries, by functions that it finds when called.

The core imports no adapter. An adapter names its functions as entry points of the group
`fitplug.adapters`, and takes what the functions here give it.
"""

from fitplug.adapters.counting import count, preview
from fitplug.adapters.releasing import release
from fitplug.adapters.series import Series, begin_series, open_series

__all__ = ["Series", "begin_series", "count", "open_series", "preview", "release"]
