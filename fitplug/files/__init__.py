"""Files: archives of arrays, Parquet, folders that appear all at once."""

from fitplug.files.archive import (
    Arrays as Arrays,
    EncodedJson as EncodedJson,
    Header as Header,
    compute_digest as compute_digest,
    read_archive as read_archive,
    read_with_digest as read_with_digest,
    select_prefixed as select_prefixed,
    write_with_digest as write_with_digest,
)
from fitplug.files.folders import (
    fill_new_folder as fill_new_folder,
    lock_folder as lock_folder,
    make_folder as make_folder,
    make_partial_folder as make_partial_folder,
    move_into_place as move_into_place,
    replace_file as replace_file,
    set_aside as set_aside,
    sync as sync,
)
from fitplug.files.memory_place import MemoryPlace as MemoryPlace
from fitplug.files.object_stores import (
    OBJECT_SCHEMES as OBJECT_SCHEMES,
    open_object_store as open_object_store,
    rename_option as rename_option,
)
from fitplug.files.parquet import (
    ArrowTable as ArrowTable,
    Columns as Columns,
    check_arrow as check_arrow,
    decode_parquet as decode_parquet,
    encode_parquet as encode_parquet,
    import_library as import_library,
    open_parquet as open_parquet,
    write_parquet as write_parquet,
)
from fitplug.files.places import (
    LocalPlace as LocalPlace,
    Place as Place,
    StorePlace as StorePlace,
    hash_content as hash_content,
    is_url as is_url,
    open_place as open_place,
    redact_url as redact_url,
)
