"""The command `tpuserve`: parse, call, print.

Each command is a file of tpuserve/commands; its work is done elsewhere. Packages that tpuserve does
not import register theirs as entry points of the group "tpuserve.commands".
"""

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import NoReturn

import click

from tpuserve import __version__
from tpuserve.errors import TpuserveError

COMMANDS_GROUP = "tpuserve.commands"
OWN_COMMANDS = ("compile", "inspect", "verify")
"""Each is the function of its name in the file of its name in tpuserve/commands."""
RUNS_PROGRAMS = "run"
"""The command whose output is a user's program's own, its runtime's log included."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class Commands(click.Group):
    """The commands of this package and the registered ones, which are imported when asked for.

    Those of the others would keep the server from hearing a signal until they are there.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        registered = (each.name for each in entry_points(group=COMMANDS_GROUP))
        return sorted({*OWN_COMMANDS, *registered})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or None."""
        command: click.Command
        if cmd_name in OWN_COMMANDS:
            command = getattr(importlib.import_module(f"tpuserve.commands.{cmd_name}"), cmd_name)
            return command
        for each in entry_points(group=COMMANDS_GROUP, name=cmd_name):
            command = each.load()
            return command
        return None


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="tpuserve")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Train with TPUEstimator, export for CPU and TPU, and serve to TensorFlow Serving clients."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    if context.invoked_subcommand != RUNS_PROGRAMS:
        # The runtime's own log is about GPUs that are not there and CPU flags; an error that
        # matters comes as an exception.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits: 0 done, 1 failed, 2 not understood.

    An error is one line on standard error; `--debug` adds the traceback.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        status = cli.main(list(arguments), prog_name="tpuserve", standalone_mode=False)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "tpuserve"
        _fail(f"{error.format_message()} See '{command} --help'.", EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", EXIT_INTERRUPTED)
    except (TpuserveError, click.ClickException) as error:
        if "--debug" in arguments:
            raise
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        _fail(text, EXIT_FAILED)
    except BrokenPipeError:
        # Who reads our output has seen enough. Nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except OSError as error:
        if "--debug" in arguments:
            raise
        _fail(f"{error}. Look at the place that is named.", EXIT_FAILED)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, status: int) -> NoReturn:
    click.echo("Error: " + " ".join(message.split()), err=True)
    sys.exit(status)
