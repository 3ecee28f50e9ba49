"""The list of commands. Each is imported only when it runs, so that help is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module, metadata
from typing import Annotated, Any

import typer

from fitplug_cli.errors import (
    INTERRUPTED,
    explain_error,
    explain_import_error,
    explain_os_error,
    fail,
    open_missing_streams,
)
from fitplug_cli.options import CommandGroup

_COMMANDS = {
    "init": ("init", "Create a spec from the names and types of the columns."),
    "report": ("report", "Show the privacy cost of a plan and of each target."),
    "explore": ("explore", "Change targets on a local web page that shows their cost."),
    "run": ("run", "Design, count and release in one step."),
    "show": ("show", "Show released numbers with their margins of error."),
    "estimate": ("estimate", "Estimate sums, differences and ratios of released numbers."),
    "compare": ("compare", "Compare the costs and margins of error of two specs or plans."),
    "verify": ("verify", "Check a plan, a release, a series or a ledger from scratch."),
    "design": ("design", "Design a plan and write it to a file."),
    "count": ("count", "Count the exact tables that the plan needs."),
    "release": ("run", "Release counts: charge the ledger, draw noise, write tables."),
    "export": ("export", "Convert a release to SDMX or a data package."),
    "truncation": ("truncation", "Estimate how many rows a limit on rows per person left out."),
    "ledger": ("ledger", "Create a privacy budget, or show its charges."),
    "series": ("series", "Release counts period by period, with a single charge."),
}
"""Each command's module and one-line help."""


class _Commands(CommandGroup):
    """The commands, imported on use.

    Typer parses with Click or with its copy of Click, so no type of Click is named here.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        names: dict[str, Any] = dict.fromkeys(_COMMANDS)
        self.commands = names  # for "Did you mean" after a misspelt command

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        name, line = _COMMANDS[cmd_name]
        module = import_module(f"fitplug_cli.commands.{name}")
        if hasattr(module, "app"):
            application = module.app
        else:
            application = typer.Typer(add_completion=False, rich_markup_mode=None)
            application.command()(getattr(module, cmd_name))
        command = typer.main.get_command(application)
        command.name, command.short_help = cmd_name, line
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


app = typer.Typer(
    cls=_Commands,
    help="Release counts about people, as accurate as you need, at the least privacy cost.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fitplug {metadata.version('fitplug')}")
        raise typer.Exit


@app.callback()
def _take_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    pass


@cache
def _build_command() -> Callable[..., Any]:
    """Build the commands once; tests run many commands in one process."""
    return typer.main.get_command(app)


def main() -> None:
    """Run a command, and turn an error into one message and an exit code."""
    open_missing_streams()
    try:
        code = _build_command()(standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        fail(*INTERRUPTED)
    except ImportError as error:
        fail(1, "ImportError", explain_import_error(error))
    except OSError as error:
        fail(1, "OSError", explain_os_error(error))
    except SystemExit as left:
        # The parser exits silently when the output is closed.
        if isinstance(left.__context__, BrokenPipeError):
            fail(1, "OSError", explain_os_error(left.__context__))
        raise
    except Exception as error:
        fail(*explain_error(error))
    if code == INTERRUPTED[0]:
        fail(*INTERRUPTED)
    sys.exit(code)


if __name__ == "__main__":
    main()
