"""The exit codes of the command line, and the sentence that it prints for an error.

The exit codes are 0 if the command is done, 1 if it failed, 2 if the spec or the arguments are
wrong, 3 if it is refused, and 4 if the key is that of another release.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def explain_error(error: Exception) -> tuple[int, str, str]:
    """Explain an error that a user can correct.

    Args:
        error: The error.

    Returns:
        The exit code, the kind of the error, and one sentence.

    Raises:
        Exception: The error itself, if it is a bug.
    """
    format_usage = getattr(error, "format_message", None)  # errors of the parser have it
    if format_usage is not None:
        names, context = list[str](), getattr(error, "ctx", None)
        while context is not None and context.parent is not None:
            names, context = [context.info_name, *names], context.parent
        message = f"{format_usage().rstrip('.')}{_suggest_hyphens(error)}"
        return 2, "UsageError", f"{message}; see: {' '.join(['fitplug', *names])} --help"
    from fitplug.errors import AlreadyReleased, FitplugError, InputError, KeyTaken, OverBudget

    codes = {OverBudget: 3, AlreadyReleased: 3, KeyTaken: 4, InputError: 2, FitplugError: 1}
    for kind, code in codes.items():
        if isinstance(error, kind):
            return code, type(error).__name__, str(error)
    raise error


def _suggest_hyphens(error: Exception) -> str:
    """Make a hint for an argument such as -by, which the parser reads as -b."""
    context = getattr(error, "ctx", None)
    if context is None or not hasattr(error, "option_name"):
        return ""
    known = {name for parameter in context.command.params for name in parameter.opts}
    meant = next((f"-{word}" for word in sys.argv[1:] if f"-{word}" in known), None)
    return "" if meant is None else f", as long options have two hyphens: {meant}"


def explain_import_error(error: ImportError) -> str:
    """Explain that a package is missing, in one sentence that says how to install it.

    Args:
        error: The error of Python, which has the name of what is missing, or one of fitplug, whose
            message says it all.
    """
    if error.name is None:
        return str(error)
    package = error.name.partition(".")[0]
    return f'the command needs the package {package}; install it with: pip install "fitplug[all]"'


def fail(code: int, kind: str, message: str) -> NoReturn:
    """End with an exit code and a sentence, which is JSON if the arguments ask for it.

    Args:
        code: The exit code.
        kind: The kind of the error, for JSON.
        message: The sentence.

    Raises:
        SystemExit: Always.
    """
    if "--json" in sys.argv[1:]:
        import json

        record = {"error": {"code": code, "kind": kind, "message": message}}
        print(json.dumps(record), file=sys.stderr)
    else:
        print(f"fitplug: {message}", file=sys.stderr)
    sys.exit(code)
