"""Sources: which files a path, folder, glob or URL means, where they lie, and their formats.

Nothing here reads a row, and nothing here imports Dask or PyArrow.
"""

from fitplug_dask.sources.file_search import FolderKey, FoundFile, Source, find_files
from fitplug_dask.sources.formats import TEXT_FORMATS, Format
from fitplug_dask.sources.locations import (
    UNTRACKED,
    Location,
    Options,
    State,
    describe_local_state,
    redact_url,
)
from fitplug_dask.sources.range_requests import StoredObject, get_request_pool
from fitplug_dask.sources.store_errors import ChangedError, StoreError
from fitplug_dask.sources.stored_bytes import open_stored_regions

__all__ = [
    "TEXT_FORMATS",
    "UNTRACKED",
    "ChangedError",
    "FolderKey",
    "Format",
    "FoundFile",
    "Location",
    "Options",
    "Source",
    "State",
    "StoreError",
    "StoredObject",
    "describe_local_state",
    "find_files",
    "get_request_pool",
    "open_stored_regions",
    "redact_url",
]
