"""The command `fitplug`, which starts even if packages are missing and then names them."""

from __future__ import annotations

from fitplug_cli.errors import INTERRUPTED, explain_import_error, fail


def main() -> None:
    """Run the command."""
    try:
        from fitplug_cli.main import main as run_command
    except ImportError as error:
        fail(1, "ImportError", explain_import_error(error))
    except KeyboardInterrupt:
        fail(*INTERRUPTED)
    run_command()


if __name__ == "__main__":
    main()
