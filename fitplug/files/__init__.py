"""Files: archives of arrays, Parquet, folders that appear all at once."""

from fitplug.files.archive import Arrays, read_archive
from fitplug.files.digested_archive import (
    Header,
    content_digest,
    read_with_digest,
    write_with_digest,
)
from fitplug.files.folders import partial_folder, put_in_place, set_aside, sync
from fitplug.files.parquet import (
    ArrowTable,
    Columns,
    check_arrow,
    import_library,
    open_parquet,
    read_parquet,
    write_parquet,
)
from fitplug.files.parquet_footer import Chunk, EncryptedError, Footer, read_footer
from fitplug.files.thrift import Fields, Wanted, read_struct

__all__ = [
    "Arrays",
    "ArrowTable",
    "Chunk",
    "Columns",
    "EncryptedError",
    "Fields",
    "Footer",
    "Header",
    "Wanted",
    "check_arrow",
    "content_digest",
    "import_library",
    "open_parquet",
    "partial_folder",
    "put_in_place",
    "read_archive",
    "read_footer",
    "read_parquet",
    "read_struct",
    "read_with_digest",
    "set_aside",
    "sync",
    "write_parquet",
    "write_with_digest",
]
