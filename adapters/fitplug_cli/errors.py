"""Exit codes and error messages of the command line.

Exit codes: 0 done, 1 failed, 2 the spec or the arguments are wrong, 3 refused, 4 the key belongs to
another release, 130 interrupted.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

INTERRUPTED = (
    130,
    "Interrupted",
    "Interrupted. With a ledger, the same command finishes the work at no further cost.",
)
"""Exit code, kind and message of an interrupted command."""


def explain_error(error: Exception) -> tuple[int, str, str]:
    """Explain an error.

    Returns:
        The exit code, the kind of the error, and a message.
    """
    format_usage = getattr(error, "format_message", None)  # usage errors of Typer have it
    if format_usage is not None:
        names, context = list[str](), getattr(error, "ctx", None)
        while context is not None and context.parent is not None:
            names, context = [context.info_name, *names], context.parent
        message = format_usage().rstrip(".")
        message += f"{'' if message.endswith('?') else '.'}{_suggest_hyphens(error)}"
        return 2, "UsageError", f"{message} See `{' '.join(['fitplug', *names])} --help`."
    from fitplug.errors import AlreadyReleased, FitplugError, InputError, KeyTaken, OverBudget

    codes = {OverBudget: 3, AlreadyReleased: 3, KeyTaken: 4, InputError: 2, FitplugError: 1}
    for kind, code in codes.items():
        if isinstance(error, kind):
            return code, type(error).__name__, str(error)
    if isinstance(error, MemoryError):
        return 1, "MemoryError", "Out of memory. Free some memory, or use a machine with more."
    return 1, "Bug", _explain_bug(error)


def _explain_bug(error: Exception) -> str:
    """Explain an unforeseen error without its message, which may quote confidential rows."""
    frames = traceback.extract_tb(error.__traceback__)
    if "--verbose" in sys.argv[1:]:
        print("".join(traceback.format_list(frames)), end="", file=sys.stderr)
    root = Path(__file__).parent.parent
    places = [frame for frame in frames if Path(frame.filename).is_relative_to(root)] or frames
    place = f"{Path(places[-1].filename).name}, line {places[-1].lineno}"
    return (
        f"Unexpected {type(error).__name__} ({place}). This is a bug; please report it. "
        "If a release was charged, the same command finishes it at no further cost."
    )


def explain_os_error(error: OSError) -> str:
    """Explain that a file or standard output cannot be read or written."""
    if isinstance(error, BrokenPipeError):
        return (
            "Standard output was closed before everything was printed. Run the command again to "
            "see the rest."
        )
    what = error.filename or "A file or standard output"
    why = (error.strerror or "it cannot be read or written").lower()
    return f"{what}: {why}. Fix this and run the command again."


def _suggest_hyphens(error: Exception) -> str:
    """Suggest --by for an argument such as -by, which the parser reads as -b."""
    context = getattr(error, "ctx", None)
    if context is None or not hasattr(error, "option_name"):
        return ""
    known = {name for parameter in context.command.params for name in parameter.opts}
    meant = next((f"-{word}" for word in sys.argv[1:] if f"-{word}" in known), None)
    return "" if meant is None else f" Did you mean {meant}?"


def explain_import_error(error: ImportError) -> str:
    """Explain which package is missing and how to install it.

    Args:
        error: Python's error, which names the module, or fitplug's, whose message is complete.
    """
    if error.name is None:
        return str(error)
    package = error.name.partition(".")[0]
    return f'The package {package} is missing. Install it with: pip install "fitplug[all]"'


def fail(code: int, kind: str, message: str) -> NoReturn:
    """Exit with a code and a message, as JSON if --json was given.

    Raises:
        SystemExit: Always.
    """
    if "--json" in sys.argv[1:]:
        import json

        message = json.dumps({"error": {"code": code, "kind": kind, "message": message}})
    else:
        message = _format_for_terminal(message)
    _abandon_unwritten_output()
    with suppress(OSError):
        print(message, file=sys.stderr, flush=True)
    sys.exit(code)


def _format_for_terminal(message: str) -> str:
    """Prefix a message with the program's name; on a terminal, wrap it and colour the name."""
    if not sys.stderr.isatty():
        return f"fitplug: {message}"
    width = shutil.get_terminal_size().columns
    lines = textwrap.wrap(
        f"fitplug: {message}", width, break_long_words=False, break_on_hyphens=False
    )
    name = "fitplug:" if os.environ.get("NO_COLOR") else "\x1b[1;31mfitplug:\x1b[0m"
    return "\n".join(lines).replace("fitplug:", name, 1)


def open_missing_streams() -> None:
    """Reopen closed standard streams, so that no file takes their numbers and is printed to."""
    for name in ("stdin", "stdout", "stderr"):  # in the order of their numbers
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r+"))


def _abandon_unwritten_output() -> None:
    """Flush standard output, or drop it: at exit Python would fail to write it again."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):  # no file, as in tests
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
