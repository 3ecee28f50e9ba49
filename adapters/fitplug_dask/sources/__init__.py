"""Sources: which files a path, folder, glob or URL means, where they lie, and their formats.

Nothing here reads a row, and nothing here imports Dask or PyArrow.
"""

from fitplug_dask.sources.file_search import FolderKey, FoundFile, Source, find_files
from fitplug_dask.sources.formats import TEXT_FORMATS, Format
from fitplug_dask.sources.locations import UNTRACKED, Location, Options, redact_url

__all__ = [
    "TEXT_FORMATS",
    "UNTRACKED",
    "FolderKey",
    "Format",
    "FoundFile",
    "Location",
    "Options",
    "Source",
    "find_files",
    "redact_url",
]
