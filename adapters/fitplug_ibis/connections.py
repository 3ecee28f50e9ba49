"""Connections: reaching a table of a database without revealing credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

from fitplug.counts import DatabaseTable, Source
from fitplug.errors import DataError, InputError

_VARIABLE = re.compile(r"\$\{([^}]*)\}")


@contextmanager
def open_table(source: Source) -> Iterator[Any]:
    """Open the table of a source as an Ibis table; close a connection that was made for it.

    Raises:
        InputError: The environment has no variable that the connection names.
        DataError: The database cannot be reached, or has no such table.
    """
    if not isinstance(source.path, DatabaseTable):
        yield source.path
        return
    import ibis

    url = expand_variables(source.path.connection)
    database, _, name = source.path.name.rpartition(".")
    connection = table = None
    with suppress(Exception):  # its message may contain the password
        connection = ibis.connect(url)
        table = connection.table(name, database=database or None)
    if connection is None or table is None:
        if connection is not None:
            with suppress(Exception):
                connection.disconnect()
        what = "be reached" if connection is None else f"show a table {source.path.name!r}"
        raise DataError(
            f"the database of {source.path!r} cannot {what}. Check the connection and the rights "
            "of the user."
        )
    try:
        yield table
    finally:
        connection.disconnect()


def expand_variables(url: str) -> str:
    """Replace each `${NAME}` by the environment variable, quoted unless it is the whole URL.

    Raises:
        InputError: There is no such variable.
    """
    for name in _VARIABLE.findall(url):
        if name not in os.environ:
            raise InputError(
                f"the connection names the environment variable {name!r}, which is not set. Set "
                "this variable."
            )
    if _VARIABLE.fullmatch(url):
        return os.environ[url[2:-1]]
    return _VARIABLE.sub(lambda match: quote(os.environ[match[1]], safe=""), url)
