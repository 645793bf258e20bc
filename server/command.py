"""The commands `tpuserve serve` and `tpuserve-model-server`.

Both take the same flags. `tpuserve serve` refuses unknown flags and base paths that do not exist,
and reports an error in one line.
`tpuserve-model-server` replaces tensorflow_model_server in scripts: REST is off by default, unknown
flags are reported and ignored, and output and exit status are those of tensorflow_model_server.
"""

import faulthandler
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version as version_of
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from server.config import cloud, flags, model_paths
from server.config.flags import Flag
from server.config.model_config import ModelConfig
from server.config.settings import AUTO, DEFAULT_PORT
from server.process.signals import StopSignals
from server.sample import digits
from tpuserve import __version__
from tpuserve.errors import InvalidSetting, MalformedConfig, ModelsNotAvailable, TpuserveError
from tpuserve.files.uris import absolute_path_or_uri

EXIT_FAILED = 255

_NAME = "tpuserve-model-server"
# The examples at the end of the help of `tpuserve serve`. The character \b tells click to keep
# their line breaks.
_EXAMPLES = """\b
Examples:
  tpuserve serve --sample
  tpuserve serve /models/half
  tpuserve serve digits.keras cats=gs://bucket/cats --rest_api_port=8080
  tpuserve serve --model_config_file=/models/models.config --lazy_load --max_model_memory=8GB
"""
# The flags that say what to serve, and which arguments replace.
_MODEL_FLAGS = ("model_name", "model_base_path", "model_config_file")
_TYPES: Mapping[str, Any] = {"int": click.INT, "float": click.FLOAT, "text": click.STRING}
_TYPE_NAMES = {"int": "int32", "float": "float", "bool": "bool", "auto": "bool", "text": "string"}
# The defaults of tpuserve-model-server that differ from those of `tpuserve serve`.
_ORIGINAL_DEFAULTS = {"rest_api_port": 0, "enable_batching": False}
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def _parse_bool(text: str | bool, other: str = "") -> bool:
    """Parse "true", "false", "1" or "0" in any case; raise click.BadParameter for another text."""
    value = _BOOLS.get(str(text).lower())
    if value is None:
        numbers = f"1, 0{other}" if other else "1 or 0"
        raise click.BadParameter(f"{text!r} is not a boolean. Give true, false, {numbers}.")
    return value


def _parse_auto(text: str | bool) -> bool | str:
    """Parse "auto", or what `_parse_bool` takes."""
    return AUTO if str(text).lower() == AUTO else _parse_bool(text, " or auto")


class _ServeCommand(click.Command):
    """The click command `serve`, whose help lists the flags in groups with titles."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; a path after a boolean flag is not the flag's value."""
        values = {
            f"--{flag.name}": (*_BOOLS, AUTO) if flag.value_type == AUTO else _BOOLS
            for flag in flags.FLAGS.values()
            if flag.value_type in ("bool", AUTO)
        }
        words = [
            f"{word}=true"
            if following.lower() not in values.get(word, [following.lower()])
            else word
            for word, following in zip(args, [*args[1:], ""], strict=False)
        ]
        return super().parse_args(ctx, words)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        records = {option.name: option.get_help_record(ctx) for option in options}
        for section in flags.SECTIONS:
            with formatter.section(section.title):
                section_records = [records.pop(flag.name) for flag in section.flags]
                formatter.write_dl([record for record in section_records if record])
        with formatter.section("Other"):
            formatter.write_dl([record for record in records.values() if record])


def _option(flag: Flag) -> click.Option:
    if flag.value_type in ("bool", AUTO):
        # Accept "--flag", which means true, as well as "--flag=value" and "--flag value".
        return click.Option(
            [f"--{flag.name}"],
            type=_parse_bool if flag.value_type == "bool" else _parse_auto,
            is_flag=False,
            flag_value="true",
            default=flag.default,
            show_default=True,
            help=flag.help,
            metavar="[BOOL]" if flag.value_type == "bool" else "[BOOL|auto]",
        )
    if flag.is_repeatable:
        return click.Option(
            [f"--{flag.name}"],
            multiple=True,
            callback=lambda context, parameter, values: ",".join(values),
            help=flag.help,
        )
    return click.Option(
        [f"--{flag.name}"],
        type=_TYPES[flag.value_type],
        default=flag.default,
        show_default=flag.default != "",
        help=flag.help,
    )


def _print_version(ctx: click.Context, _: click.Parameter, is_requested: bool) -> None:
    if is_requested and not ctx.resilient_parsing:
        click.echo(f"TensorFlow ModelServer: {__version__} (tpuserve)")
        click.echo(f"TensorFlow Library: {version_of('tensorflow')}")
        click.echo(f"TensorFlow Serving API: {version_of('tensorflow-serving-api')}")
        ctx.exit()


def _options() -> list[click.Parameter]:
    version = click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_print_version,
        help="Show the versions of this server, TensorFlow and the API of TensorFlow Serving.",
    )
    return [*map(_option, flags.FLAGS.values()), version]


def _run_server(
    values: Mapping[str, Any],
    variables: Sequence[str],
    on_ready: Callable[[], None] = lambda: None,
    **settings_of_serve: Any,
) -> None:
    # If a kernel ends the process, say in which line each thread was.
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)
    # Install the signal handlers before the slow imports, so that Ctrl-C works from the start.
    signals = StopSignals()
    signals.install()
    try:
        # Import the server here and not at the top of the file, so that the help of the other
        # commands of `tpuserve` does not wait for the import of web frameworks.
        from server import supervisor

        ignored = flags.ignored_flags(_flags_on_command_line(click.get_current_context()))
        settings = flags.settings_from_flags(values, **settings_of_serve)
        supervisor.run(
            settings, ignored=ignored, variables=variables, signals=signals, on_ready=on_ready
        )
    finally:
        signals.uninstall()


def _flags_on_command_line(context: click.Context) -> list[str]:
    return [
        name
        for name in flags.FLAGS
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]


def _apply_environment(values: dict[str, Any], ignored: Sequence[str] = ()) -> list[str]:
    """Set the flags for which a cloud service has set environment variables.

    A flag on the command line wins over its environment variable. The variable of
    --model_base_path is ignored if --model_config_file is set.

    Args:
      values: the value of each flag by its name; changed in place.
      ignored: the names of flags whose variables are ignored.

    Returns:
      The flags that were set, each with its variable, such as
      "--rest_api_port=8080 (AIP_HTTP_PORT)".
    """
    flag_names = [*_flags_on_command_line(click.get_current_context()), *ignored]
    chosen = []
    for name, (value, variable) in cloud.flags_from_environment(os.environ).items():
        is_replaced = name == "model_base_path" and values["model_config_file"]
        if name not in flag_names and not is_replaced:
            values[name] = value
            text = "true" if value is True else value
            chosen.append(f"--{name}={text} ({variable})")
    return chosen


def _serve(sample: bool, models: Sequence[str], **values: Any) -> None:
    variables: list[str] = []
    parsed = model_paths.parse_model_paths(models)
    if parsed:
        _check_no_other_model(parsed[0], sample)
    if sample:
        _choose_sample(values)
    else:
        variables = _apply_environment(values, ignored=_MODEL_FLAGS if parsed else ())
    if parsed:
        values["model_name"] = parsed[0].name
    if values["model_base_path"]:
        values["model_base_path"] = absolute_path_or_uri(values["model_base_path"])

    def on_ready() -> None:
        if sample and values["rest_api_port"]:
            click.echo("Ask the sample model from another terminal:\n")
            click.echo(digits.curl_command(values["rest_api_port"]) + "\n")

    try:
        _run_server(values, variables, on_ready, models=parsed, base_paths_required=True)
    except ModelsNotAvailable as error:
        # If only one model has failed to load, report the error of its load instead of the summary
        # of all models, which is longer and says no more.
        if isinstance(error.__cause__, TpuserveError):
            raise error.__cause__ from None
        raise


def _choose_sample(values: dict[str, Any]) -> None:
    """Set the flags of `serve` so that the server serves the sample model, for the flag --sample.

    Args:
      values: the value of each flag by its name; changed in place.

    Raises:
      InvalidSetting: another flag, or an environment variable that a cloud service has set, asks
        for another model.
    """
    digits.check_flags(values["model_base_path"], values["model_config_file"])
    for _, variable in cloud.flags_from_environment(os.environ).values():
        raise InvalidSetting(
            f"--sample serves the sample model, and the environment variable "
            f"{variable}={os.environ[variable]} asks for the model of a cloud service. Remove the "
            f"flag or the variable."
        )
    values.update(model_name=digits.NAME, model_base_path=str(digits.BASE_PATH))


def _check_no_other_model(first: ModelConfig, sample: bool) -> None:
    """Raise an error if a flag on the command line asks for another model than the arguments do."""
    given = set(_flags_on_command_line(click.get_current_context())).intersection(_MODEL_FLAGS)
    if sample or given:
        flag = "--sample" if sample else f"--{min(given)}"
        raise InvalidSetting(
            f"the argument {first.base_path} and {flag} both say what to serve. Give the arguments "
            f"without {flag}, as: tpuserve serve {first.name}={first.base_path}"
        )


_MODELS = click.Argument(["models"], nargs=-1, type=click.Path(), metavar="[[NAME=]PATH]...")
_SAMPLE = click.Option(
    ["--sample"],
    is_flag=True,
    help="Serve the sample model that comes with tpuserve, and print a request to it once it can "
    "answer.",
)

serve = _ServeCommand(
    "serve",
    callback=_serve,
    params=[_MODELS, _SAMPLE, *_options()],
    help="""Serve models over TensorFlow Serving's REST and gRPC.

    PATH is a SavedModel, a directory of its versions, a .keras file, or the URI of one of them in
    gs, s3, az, hf, http or https. NAME is the name that clients use; without it, the path gives
    the name: half for /models/half, /models/half/1795278862 and half.keras.

    Flags have the meaning that they have for tensorflow_model_server. SIGTERM or Ctrl-C stops the
    server after the requests in flight are answered.
    """,
    epilog=_EXAMPLES,
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command `tpuserve-model-server`, and exit with its status.

    Args:
      arguments: the command line without the program's name; None for that of this process.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    command = click.Command(
        _NAME,
        callback=_model_server,
        params=[*_options(), click.Option(["--help"], is_flag=True, is_eager=True)],
        add_help_option=False,
        context_settings={
            "ignore_unknown_options": True,
            "allow_extra_args": True,
            "default_map": _ORIGINAL_DEFAULTS,
        },
    )
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        status = command.main(list(arguments), prog_name=_NAME, standalone_mode=False)
    except click.UsageError as error:
        click.echo(f"{error.format_message()}\n{format_usage()}")
        status = EXIT_FAILED
    except TpuserveError as error:
        click.echo(f"Failed to start server. Error: {error.code.name}: {error.text_for_operators}")
        if isinstance(error, MalformedConfig):
            # Print the error also to standard error, where tensorflow_model_server prints such
            # errors, and scripts look for them.
            click.echo(str(error), err=True)
        status = EXIT_FAILED
    sys.exit(status if isinstance(status, int) else 0)


def _model_server(help: bool, **values: Any) -> int:
    context = click.get_current_context()
    if help:
        click.echo(format_usage())
        return EXIT_FAILED
    for argument in context.args:
        click.echo(f"unknown argument: {argument}")
    if context.args:
        click.echo(format_usage())
    variables = _apply_environment(values)
    has_models = values["model_base_path"] or values["model_config_file"]
    if not has_models and not values["sagemaker_multi_model"]:
        click.echo(format_usage())
        return EXIT_FAILED
    if values["rest_api_port"] and values["rest_api_port"] == values["port"]:
        click.echo(
            "--rest_api_port cannot be same as --port. Please use a different port for HTTP/REST "
            "API. Skipped exporting HTTP/REST API.",
            err=True,
        )
        values["rest_api_port"] = 0
    _run_server(values, variables)
    return 0


def format_usage() -> str:
    """Return the usage text of `tpuserve-model-server`, in the layout of tensorflow_model_server.

    Each flag has a line with its default, type and meaning.
    """
    lines = [f"usage: {_NAME}", "Flags:"]
    for flag in flags.FLAGS.values():
        default = {"port": DEFAULT_PORT, **_ORIGINAL_DEFAULTS}.get(flag.name, flag.default)
        default_text = str(default).lower() if isinstance(default, bool) else default
        value = f'"{default_text}"' if flag.value_type == "text" else default_text
        argument = f"--{flag.name}={value}"
        lines.append(f"\t{argument:<40}\t{_TYPE_NAMES[flag.value_type]}\t{flag.help}")
    return "\n".join(lines)
