"""Defines arguments and options that several commands of `tpuserve` share."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tpuserve.commands.path_type import SavedModelPath

directory_argument = click.argument("directory", type=SavedModelPath())

signing_key_option = click.option(
    "--signing_key",
    "--signing-key",
    "signing_key",
    type=click.Path(path_type=Path),
    metavar="PRIVATE.pem",
    help="Sign the files with this private key: write model.sig (OpenSSF Model Signing). Needs the "
    "extra signing.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


# The pattern of a topology in libtpu's notation, such as "v5e:2x2". It accepts no dimension of 0,
# with which libtpu would divide by 0 and crash.
_TOPOLOGY = re.compile(r"[a-z]\w*:[1-9]\d*(x[1-9]\d*)*(_(un)?twisted)?")


class TopologyType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The click type of an option that names a TPU topology.

    A value is a topology in libtpu's notation ("v5e:2x2"), a TPU generation ("v5e"), or an
    accelerator type of Cloud TPU ("v5litepod-4").
    """

    name = "TOPOLOGY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the topology in libtpu's notation; fail with a usage error if it is unknown.

        Raises:
          InvalidSetting: The value is the incomplete name of a generation: "v5" can mean v5e or
            v5p.
        """
        from tpuserve.compilation import topology_names

        topology = topology_names.find_topology(value)
        if topology is None or not _TOPOLOGY.fullmatch(topology):
            self.fail(
                f"{value!r} is not a valid TOPOLOGY. Give a generation and its chips such as "
                f"v5e:2x2, a generation such as v5e, or a type of Cloud TPU such as v5litepod-4.",
                param,
                ctx,
            )
        return topology


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


def connection_options(command: Command) -> Command:
    """Add to a command the options of the connections to a server."""
    for option in reversed(_CONNECTION_OPTIONS):
        command = option(command)
    return command


_CONNECTION_OPTIONS = (
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="Time limit of a request.",
    ),
    click.option(
        "--api-key", default="", envvar="TPUSERVE_API_KEY", help="API key, sent as a bearer token."
    ),
    click.option(
        "--ca-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="PEM file of certificates for https:// and grpcs://.",
    ),
)


import_ops_option = click.option(
    "--import_ops",
    "--import-ops",
    "import_ops",
    multiple=True,
    metavar="NAMES",
    callback=lambda context, parameter, values: _check_import_ops(values),
    help="Python packages that register ops, and libraries for tf.load_op_library, separated by "
    "commas (repeatable). tensorflow_text is imported by itself for a model that needs it.",
)


def _check_import_ops(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of an option --import_ops; fail before the slow import of TensorFlow.

    Raises:
      InvalidSetting: A package or a library is missing.
    """
    from tpuserve.saved_model import op_imports

    names = op_imports.parse_names(values)
    op_imports.check_names(names)
    return names


class _EchoHandler(logging.Handler):
    """Writes log records to the standard error of the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


def import_tensorflow(import_ops: tuple[str, ...]) -> None:
    """Import TensorFlow and the ops of an option --import_ops; say which ops are imported later.

    Raises:
      InvalidSetting: A package or a library cannot be loaded, or registers no ops.
    """
    from tpuserve.runtime import tf_logging
    from tpuserve.saved_model import op_imports

    tf_logging.import_tensorflow()
    op_imports.logger.setLevel(logging.INFO)
    if not op_imports.logger.handlers:
        op_imports.logger.addHandler(_EchoHandler())
    op_imports.import_ops(import_ops)
