"""Arguments and options that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tpuserve.commands.path_type import SavedModelPath

directory_argument = click.argument("directory", type=SavedModelPath())

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


Command = TypeVar("Command", bound=Callable[..., Any])


def signature_option(verb: str) -> Callable[[Command], Command]:
    """Return the decorator that adds the option --signature to a command.

    Args:
      verb: What the command does with a signature, such as "Check", for the help text.
    """
    return click.option(
        "--signature",
        "signatures",
        multiple=True,
        metavar="NAME",
        help=f"{verb} only this signature (repeatable). Default: all signatures.",
    )


def batch_size_option(help_text: str) -> Callable[[Command], Command]:
    """Return the decorator that adds the option --batch-size, which takes several values.

    Args:
      help_text: Help text of the option, which names the default value.
    """
    return click.option(
        "--batch-size",
        "batch_sizes",
        multiple=True,
        type=click.IntRange(min=1),
        metavar="ROWS...",
        help=help_text,
    )
