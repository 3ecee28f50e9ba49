"""Files: archives of arrays, Parquet, folders that appear all at once."""

from fitplug.files.archive import (
    Arrays,
    EncodedJson,
    Header,
    compute_digest,
    read_archive,
    read_with_digest,
    select_prefixed,
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
from fitplug.files.memory_place import MemoryPlace
from fitplug.files.object_stores import OBJECT_SCHEMES, open_object_store, rename_option
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
from fitplug.files.places import (
    LocalPlace,
    Place,
    StorePlace,
    hash_content,
    is_url,
    open_place,
    redact_url,
)

__all__ = [
    "OBJECT_SCHEMES",
    "Arrays",
    "ArrowTable",
    "Columns",
    "EncodedJson",
    "Header",
    "LocalPlace",
    "MemoryPlace",
    "Place",
    "StorePlace",
    "check_arrow",
    "compute_digest",
    "decode_parquet",
    "encode_parquet",
    "fill_new_folder",
    "hash_content",
    "import_library",
    "is_url",
    "make_partial_folder",
    "move_into_place",
    "open_object_store",
    "open_parquet",
    "open_place",
    "read_archive",
    "read_with_digest",
    "redact_url",
    "rename_option",
    "replace_file",
    "select_prefixed",
    "set_aside",
    "sync",
    "write_parquet",
    "write_with_digest",
]
