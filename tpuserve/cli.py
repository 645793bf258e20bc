"""Runs the command line tool `tpuserve`: finds the command, runs it, and prints errors as one line.

Most commands are modules in tpuserve/commands. Those of trainer and server are imported by name,
because tpuserve does not depend on these packages.
"""

import difflib
import importlib
import itertools
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

import click

from tpuserve import __version__
from tpuserve.errors import TpuserveError

_OWN = (
    "analyse",
    "bench",
    "compare",
    "compile",
    "convert",
    "doctor",
    "export",
    "inspect",
    "predict",
    "verify",
)
# Name of a command → the module that defines a function of this name.
_COMMANDS = {
    **{name: f"tpuserve.commands.{name}" for name in _OWN},
    "demo": "trainer.demo.command",
    "migrate": "trainer.migration.command",
    "run": "trainer.compat.command",
    "serve": "server.command",
}

QUIET_LOG_LEVEL = "3"
"""The value of TF_CPP_MIN_LOG_LEVEL with which TensorFlow's C++ code logs fatal errors only."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class CommandGroup(click.Group):
    """The click group of all commands, which imports a command only when it is used.

    Importing all of them takes time, during which `tpuserve serve` could not handle signals yet.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the sorted names of all commands, without importing the commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is no command of that name."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(_COMMANDS[cmd_name]), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            similar = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not similar:
                raise
            message = f"{error.message} Did you mean {similar[0]!r}?"
            raise click.UsageError(message, error.ctx) from None


def _print_versions(ctx: click.Context, _: click.Parameter, is_requested: bool) -> None:
    if is_requested and not ctx.resilient_parsing:
        click.echo(f"tpuserve {__version__}")
        click.echo(f"TensorFlow {version('tensorflow')}")
        click.echo(f"TensorFlow Serving's API {version('tensorflow-serving-api')}")
        ctx.exit()


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""
    \b
    Examples:
      tpuserve serve --sample
      tpuserve inspect export/1795236187
    """,
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_versions,
    help="Show the versions of tpuserve, TensorFlow and the API of TensorFlow Serving.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Train with TPUEstimator, export for CPU and TPU, and serve to TensorFlow Serving clients."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    # Silence the log messages of TensorFlow's C++ code. They are about missing GPUs and CPU
    # features. TensorFlow reports important errors by exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", QUIET_LOG_LEVEL)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    The status is 0 after success, 1 after a failure, 2 after a usage error and 130 after an
    interruption, unless the command returns another status.

    Args:
      arguments: The command line arguments without the program's name; None for `sys.argv[1:]`.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    # Ignore a --debug that comes after the command's name: it may be an argument of a program that
    # the command runs.
    debug = "--debug" in itertools.takewhile(lambda argument: argument[:1] == "-", arguments)
    try:
        status = cli.main(list(arguments), prog_name="tpuserve", standalone_mode=False)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "tpuserve"
        _exit_with_error(f"{error.format_message()} See '{command} --help'.", EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        _exit_with_error("interrupted", EXIT_INTERRUPTED)
    except (TpuserveError, click.ClickException) as error:
        if debug:
            raise
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        _exit_with_error(text, EXIT_FAILED)
    except BrokenPipeError:
        # The process that reads standard output, such as `head`, has closed the pipe. Redirect
        # standard output to /dev/null: Python flushes it at exit, which would raise another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except OSError as error:
        if debug:
            raise
        _exit_with_error(f"{error}. Check the file or directory.", EXIT_FAILED)
    sys.exit(status if isinstance(status, int) else 0)


def _exit_with_error(message: str, status: int) -> NoReturn:
    click.echo("Error: " + " ".join(message.split()), err=True)
    sys.exit(status)
