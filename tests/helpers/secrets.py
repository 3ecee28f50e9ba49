"""Values that only rows hold, and where they must not appear."""

from __future__ import annotations

import re
import traceback

TEXT = "CANARY7351"
NUMBER = 735173517351
ROWS = 1237


_TIME_OF_LOG = re.compile(r"\d\d:\d\d:\d\d,\d{3}")


def secrets_in(text: str) -> list[str]:
    # The milliseconds of a log line, 12:12:41,237, may hold the number of rows by chance.
    text = _TIME_OF_LOG.sub("", text)
    # The addresses of workers hold process ids and ports, which may hold the digits by chance.
    rows = re.findall(rf"(?<![\d/:.]){ROWS}(?!\d)", text)
    return rows + [s for s in (TEXT, str(NUMBER), f"{ROWS:,}") if s in text]


def told_by(error: BaseException, locals_too: bool = False) -> str:
    lines = traceback.TracebackException.from_exception(error, capture_locals=locals_too).format(
        chain=True
    )
    return "\n".join([str(error), repr(error), repr(error.args), *lines])
