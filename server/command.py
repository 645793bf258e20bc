"""The commands `tpuserve serve` and `tpuserve-model-server`.

Both take the same flags. The first is this project's: a flag it does not know is an error, and an
error is one line. The second stands in for tensorflow_model_server in scripts: REST is off unless
asked for, unknown arguments are told and passed over, and what it prints and its status are those
that such scripts know.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version as version_of
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from server.config import flags
from server.config.flags import Flag
from server.config.settings import DEFAULT_PORT
from server.process.signals import StopSignals
from tpuserve import __version__
from tpuserve.errors import ModelsNotAvailable, TpuserveError

EXIT_FAILED = 255

_NAME = "tpuserve-model-server"
_TYPES: Mapping[str, Any] = {"int": click.INT, "float": click.FLOAT, "text": click.STRING}
_SHOWN_TYPES = {"int": "int32", "float": "float", "bool": "bool", "text": "string"}


def _truth(text: str | bool) -> bool:
    """A flag's value as TensorFlow's command lines read it; click.BadParameter for any other."""
    known = {"true": True, "1": True, "false": False, "0": False}
    found = known.get(str(text).lower())
    if found is None:
        raise click.BadParameter(f"{text!r} is neither yes nor no. Give true, false, 1 or 0.")
    return found


class _Serve(click.Command):
    """Shows its flags section by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {each.name: each.get_help_record(ctx) for each in self.get_params(ctx)}
        for section in flags.SECTIONS:
            with formatter.section(section.title):
                found = [records.pop(each.name) for each in section.flags]
                formatter.write_dl([each for each in found if each])
        with formatter.section("Other"):
            formatter.write_dl([each for each in records.values() if each])


def _option(flag: Flag) -> click.Option:
    if flag.value_type == "bool":
        # Bare, it means true; a value may follow it in either spelling.
        return click.Option(
            [f"--{flag.name}"],
            type=_truth,
            is_flag=False,
            flag_value="true",
            default=flag.default,
            show_default=True,
            help=flag.help,
            metavar="[BOOL]",
        )
    return click.Option(
        [f"--{flag.name}"],
        type=_TYPES[flag.value_type],
        default=flag.default,
        show_default=flag.default != "",
        help=flag.help,
    )


def _tell_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        click.echo(f"TensorFlow ModelServer: {__version__} (tpuserve)")
        click.echo(f"TensorFlow Library: {version_of('tensorflow')}")
        ctx.exit()


def _options() -> list[click.Parameter]:
    version = click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_tell_version,
        help="Show the versions of this server and of TensorFlow.",
    )
    return [*map(_option, flags.FLAGS.values()), version]


def _run(**values: Any) -> None:
    # Before anything is imported that takes long: who starts it may change their mind.
    signals = StopSignals()
    signals.install()
    try:
        # Imported here so that the other commands' help does not wait for web frameworks.
        from server import app

        ignored = flags.ignored_flags(_given(click.get_current_context()))
        app.run(flags.settings_from_flags(values), ignored=ignored, signals=signals)
    finally:
        signals.uninstall()


def _given(context: click.Context) -> list[str]:
    return [
        name
        for name in context.params
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]


def _run_alone(**values: Any) -> None:
    try:
        _run(**values)
    except ModelsNotAvailable as error:
        # Of a single model its own error says all, and in fewer words.
        if isinstance(error.__cause__, TpuserveError):
            raise error.__cause__ from None
        raise


serve = _Serve(
    "serve",
    callback=_run_alone,
    params=_options(),
    help="""Serve SavedModelLoader over TensorFlow Serving's REST and gRPC.

    Flags mean what they mean to tensorflow_model_server. SIGTERM or Ctrl-C stops the server once
    the requests in flight are answered.""",
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the stand-in for tensorflow_model_server, and exits with its statuses."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    command = click.Command(
        _NAME,
        callback=_stand_in,
        params=[*_options(), click.Option(["--help"], is_flag=True, is_eager=True)],
        add_help_option=False,
        context_settings={
            "ignore_unknown_options": True,
            "allow_extra_args": True,
            "default_map": {"rest_api_port": 0},
        },
    )
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        status = command.main(list(arguments), prog_name=_NAME, standalone_mode=False)
    except click.UsageError as error:
        click.echo(f"{error.format_message()}\n{usage()}")
        status = EXIT_FAILED
    except TpuserveError as error:
        click.echo(f"Failed to start server. Error: {error.code.name}: {error}")
        status = EXIT_FAILED
    sys.exit(status if isinstance(status, int) else 0)


def _stand_in(help: bool, **values: Any) -> int:
    context = click.get_current_context()
    if help:
        click.echo(usage())
        return EXIT_FAILED
    for argument in context.args:
        click.echo(f"unknown argument: {argument}")
    if context.args:
        click.echo(usage())
    if not values["model_base_path"] and not values["model_config_file"]:
        click.echo(usage())
        return EXIT_FAILED
    if values["rest_api_port"] and values["rest_api_port"] == values["port"]:
        click.echo(
            "--rest_api_port cannot be same as --port. Please use a different port for HTTP/REST "
            "API. Skipped exporting HTTP/REST API.",
            err=True,
        )
        values["rest_api_port"] = 0
    _run(**values)
    return 0


def usage() -> str:
    """All flags with type, default and meaning, in the layout of TensorFlow's command lines."""
    lines = [f"usage: {_NAME}", "Flags:"]
    for flag in flags.FLAGS.values():
        default = {"port": DEFAULT_PORT, "rest_api_port": 0}.get(flag.name, flag.default)
        shown = str(default).lower() if flag.value_type == "bool" else default
        value = f'"{shown}"' if flag.value_type == "text" else shown
        argument = f"--{flag.name}={value}"
        lines.append(f"\t{argument:<40}\t{_SHOWN_TYPES[flag.value_type]}\t{flag.help}")
    return "\n".join(lines)
