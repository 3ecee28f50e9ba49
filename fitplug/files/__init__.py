"""Files: archives of arrays, Parquet, folders that appear all at once."""

from fitplug.files.archive import (
    Arrays,
    EncodedJson,
    Header,
    compute_digest,
    read_archive,
    read_with_digest,
    write_with_digest,
)
from fitplug.files.folders import (
    fill_new_folder,
    make_partial_folder,
    move_into_place,
    replace_file,
    set_aside,
    sync,
)
from fitplug.files.parquet import (
    ArrowTable,
    Columns,
    check_arrow,
    decode_parquet,
    encode_parquet,
    import_library,
    open_parquet,
    write_parquet,
)
from fitplug.files.parquet_footer import (
    EncryptedError,
    Footer,
    SummaryError,
    decode_footer,
    read_footer,
)
from fitplug.files.parquet_schema import ColumnChunk, MovedGroup, ParquetSchema, RowGroup
from fitplug.files.places import LocalPlace, Place, hash_content, is_url, open_place
from fitplug.files.thrift import ThriftFields, WantedFields, read_struct

__all__ = [
    "Arrays",
    "ArrowTable",
    "ColumnChunk",
    "Columns",
    "EncodedJson",
    "EncryptedError",
    "Footer",
    "Header",
    "LocalPlace",
    "MovedGroup",
    "ParquetSchema",
    "Place",
    "RowGroup",
    "SummaryError",
    "ThriftFields",
    "WantedFields",
    "check_arrow",
    "compute_digest",
    "decode_footer",
    "decode_parquet",
    "encode_parquet",
    "fill_new_folder",
    "hash_content",
    "import_library",
    "is_url",
    "make_partial_folder",
    "move_into_place",
    "open_parquet",
    "open_place",
    "read_archive",
    "read_footer",
    "read_struct",
    "read_with_digest",
    "replace_file",
    "set_aside",
    "sync",
    "write_parquet",
    "write_with_digest",
]
