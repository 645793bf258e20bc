"""Implements `tpuserve compare`, which compares the answers of two servers to the same requests."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from tpuserve.commands.common_options import connection_options, json_option, signature_option
from tpuserve.commands.exit_on_sigterm import exit_on_sigterm
from tpuserve.commands.path_type import LocalPath, MultiValueCommand, OutputPath, PatternType
from tpuserve.commands.progress import progress_bar
from tpuserve.errors import TpuserveError

if TYPE_CHECKING:
    from tpuserve.compare.report import Report
    from tpuserve.compare.requests import Requests
    from tpuserve.compare.side import Side

Command = TypeVar("Command", bound=Callable[..., Any])

EXIT_DIFFERENT = 1
EXIT_NOT_COMPARED = 2

_CONCURRENCY_AT_RATE = 64


class _CompareCommand(MultiValueCommand):
    """A command whose every mistake in the arguments has status 2: 1 means different answers."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except TpuserveError as error:
            raise click.UsageError(str(error)) from error


def _parse_tolerance(text: str) -> tuple[str, float]:
    dtype, _, number = text.rpartition(":")
    return dtype, float(number)


_TOLERANCE = PatternType(
    "[DTYPE:]NUMBER", r"([a-z]+\d+:)?\d+(\.\d*)?(e-?\d+)?", _parse_tolerance, example="float16:1e-2"
)

# The character \b tells click to keep the line breaks of the examples.
_EXAMPLES = """\b
Examples:
  tpuserve compare http://tfs:8501 http://new:8501 --model half --request-log /logs
  tpuserve compare grpc://tfs:8500 http://new:8501 --model half --request-log a.tfrecord --rate 50
  tpuserve compare http://new:8501 --model half --baseline-version 1 --candidate-version 2
"""


def _side_options(command: Command) -> Command:
    """Add the options that select the model, the version and the API of each side."""
    for side in ("candidate", "baseline"):
        for option in (
            click.option(
                f"--{side}-api",
                type=click.Choice(["v1", "v2"]),
                default="v1",
                show_default=True,
                help=f"API of the {side}: TensorFlow Serving's, or the Open Inference Protocol.",
            ),
            click.option(f"--{side}-label", default="", metavar="LABEL", help="Label instead."),
            click.option(
                f"--{side}-version", type=int, metavar="N", help="Version. Default: the newest."
            ),
            click.option(
                f"--{side}-model", metavar="NAME", help="Name of the model there, if it is another."
            ),
        ):
            command = option(command)
    return command


@click.command(cls=_CompareCommand, epilog=_EXAMPLES)
@click.argument("baseline_url")
@click.argument("candidate_url", required=False)
@click.option("--model", required=True, metavar="NAME", help="Name of the model.")
@click.option(
    "--request-log",
    "request_logs",
    multiple=True,
    type=LocalPath(),
    metavar="PATH...",
    help="Send the requests in request logs or warm-up files: TFRecord files of PredictionLogs, or "
    "directories of *.tfrecord files.",
)
@click.option(
    "--inputs",
    type=LocalPath(dir_okay=False),
    metavar="FILE",
    help="Send these inputs: .npz, .json, or .jsonl with a request in each line. Default without "
    "--request-log: 16 requests with random inputs, for --signature or the default signature.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="ROWS",
    help="Rows of random inputs.",
)
@signature_option("Compare")
@_side_options
@click.option(
    "--atol",
    multiple=True,
    type=_TOLERANCE,
    metavar="[DTYPE:]NUMBER...",
    help="Absolute tolerance, e.g. `--atol 1e-4 float16:1e-2`. Default: 1e-5; 1e-3 for float16 and "
    "1e-2 for bfloat16.",
)
@click.option(
    "--rtol",
    multiple=True,
    type=_TOLERANCE,
    metavar="[DTYPE:]NUMBER...",
    help="Relative tolerance, with the same defaults.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    metavar="REQUESTS",
    help="Largest number of requests under way on each side. Default: 1, or 64 with --rate.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="RATE",
    help="Requests per second. Default: the next request follows when one is answered.",
)
@connection_options
@click.option(
    "--outputs",
    type=OutputPath(file_okay=False),
    metavar="DIRECTORY",
    help="Write the results, the report and the requests that differ. If the command is stopped, "
    "the same command continues there.",
)
@json_option
@click.pass_context
def compare(context: click.Context, /, as_json: bool, **options: Any) -> None:
    """Compare the answers of two servers or versions of a model.

    BASELINE_URL and CANDIDATE_URL are http://HOST:PORT for REST or grpc://HOST:PORT for gRPC, of
    any servers that speak TensorFlow Serving's API or the Open Inference Protocol. Without
    CANDIDATE_URL, both sides are on one server.

    Each request goes to both sides at the same time, by the method of its record. The version that
    a record names is ignored. A float is the same if |baseline - candidate| <= atol + rtol *
    |baseline|; other values, and the codes and texts of errors, must be equal. Latencies are shown
    only.

    The exit status is 0 if all answers are the same, 1 if some differ, and 2 if they could not be
    compared.
    """
    try:
        report = _compare(**options)
    except (TpuserveError, OSError) as error:
        if context.find_root().params.get("debug"):
            raise
        click.echo("Error: " + " ".join(str(error).split()), err=True)
        context.exit(EXIT_NOT_COMPARED)
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    else:
        from tpuserve.compare.rendering import print_report

        print_report(report)
    if report.failure:
        click.echo(f"Error: {report.failure}", err=True)
        context.exit(EXIT_NOT_COMPARED)
    if report.num_differing:
        context.exit(EXIT_DIFFERENT)


def _compare(**options: Any) -> "Report":
    from tpuserve.compare.comparer import Procedure
    from tpuserve.compare.comparer import compare as run_comparison
    from tpuserve.compare.result import Tolerances

    baseline, candidate = _sides(options)
    rate = options["rate"]
    procedure = Procedure(
        options["concurrency"] or (1 if rate is None else _CONCURRENCY_AT_RATE),
        rate,
        Tolerances(dict(options["atol"]), dict(options["rtol"])),
    )
    with exit_on_sigterm(), progress_bar() as progress:
        requests = _requests(baseline, candidate, options)
        return run_comparison(
            baseline, candidate, requests, procedure, options["outputs"], progress
        )


def _sides(options: Mapping[str, Any]) -> "tuple[Side, Side]":
    from tpuserve.client.call import ModelReference
    from tpuserve.compare.side import Side

    def create(name: Literal["baseline", "candidate"], url: str) -> Side:
        ca_file = options["ca_file"]
        model = options[f"{name}_model"] or options["model"]
        return Side(
            name,
            url,
            ModelReference(model, options[f"{name}_version"], options[f"{name}_label"]),
            options[f"{name}_api"],
            options["timeout_s"],
            options["api_key"],
            None if ca_file is None else str(ca_file),
        )

    baseline_url = options["baseline_url"]
    baseline = create("baseline", baseline_url)
    candidate = create("candidate", options["candidate_url"] or baseline_url)
    if str(baseline) == str(candidate):
        raise click.UsageError(
            f"both sides are {baseline}. Give a CANDIDATE_URL, or an option such as "
            f"--candidate-version."
        )
    return baseline, candidate


def _requests(baseline: "Side", candidate: "Side", options: Mapping[str, Any]) -> "Requests":
    from tpuserve.bench.benchmark import InputChoice, Target, choose_requests
    from tpuserve.compare.requests import (
        METHODS,
        Requests,
        Source,
        find_log_files,
        predict_record,
    )

    signatures, path, batch_size = options["signatures"], options["inputs"], options["batch_size"]
    if path and options["request_logs"]:
        raise click.UsageError("--inputs and --request-log are given. Give one of them.")
    if options["request_logs"]:
        sources = find_log_files(options["request_logs"])
    else:
        records = []
        for signature in signatures or ("",):
            target = Target(
                baseline.url,
                baseline.model.name,
                baseline.api,
                signature,
                baseline.api_key,
                baseline.ca_file,
                baseline.timeout_s,
            )
            chosen = choose_requests(target, InputChoice(batch_size, file=path))
            records += [predict_record(signature, each.inputs) for each in chosen.inputs]
        random = f"random inputs of {batch_size} rows"
        name, size = (str(path.resolve()), path.stat().st_size) if path else (random, 0)
        sources = [Source(name, size, lambda: records)]
    models = {options["model"], baseline.model.name, candidate.model.name}
    methods = [each for each in METHODS if each in baseline.methods and each in candidate.methods]
    return Requests(sources, models, signatures, methods)
