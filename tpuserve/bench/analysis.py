"""Measures a model with several configurations of the server, and chooses the fastest of them."""

import importlib.util
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tpuserve import local_server
from tpuserve.bench import benchmark
from tpuserve.bench.benchmark import InputChoice, Target
from tpuserve.bench.load import Load
from tpuserve.bench.windows import Procedure, Result
from tpuserve.errors import ServerNotStarted

_TIMEOUT_BATCH_SIZE = 32
_TIMEOUT_MICROS = 1000


@dataclass(frozen=True)
class Configuration:
    """A set of flags with which a server is started and measured.

    Attributes:
      name: the name of the configuration in tables, such as "xla, batching".
      flags: flag of `tpuserve serve` without "--" → its value. The attribute batching_parameters
        stands for the flag batching_parameters_file.
      batching_parameters: the text of the batching parameters file; "" for no file.
    """

    name: str
    flags: Mapping[str, Any]
    batching_parameters: str = ""


@dataclass(frozen=True)
class Analysis:
    """The measurements of a server that was started with one configuration.

    Attributes:
      configuration: the flags of the server.
      results: one result for each number of clients; empty if the server did not start.
      error: why the server did not start; "" if it did.
    """

    configuration: Configuration
    results: Sequence[Result] = field(default_factory=list)
    error: str = ""


@dataclass(frozen=True)
class Choice:
    """The configuration that answers the most requests per second within a latency limit.

    Attributes:
      analysis: all measurements of the configuration.
      result: the measurement within the limit that has the most requests per second.
    """

    analysis: Analysis
    result: Result


def configurations() -> list[Configuration]:
    """Return the configurations to measure.

    Each engine (TensorFlow, and XLA if jax is installed) has three configurations: without
    batching, with batching by the default policy, and with batching by a timeout policy like that
    of TensorFlow Serving.
    """
    # jax is an optional dependency. Without jax, a server with --engine=xla cannot start.
    engines = ("tensorflow", "xla") if importlib.util.find_spec("jax") else ("tensorflow",)
    timeout_policy = (
        f'batching_policy: "timeout"\n'
        f"max_batch_size {{ value: {_TIMEOUT_BATCH_SIZE} }}\n"
        f"batch_timeout_micros {{ value: {_TIMEOUT_MICROS} }}\n"
        f"num_batch_threads {{ value: {os.cpu_count() or 1} }}\n"
    )
    result = []
    for engine in engines:
        flags = {"engine": engine}
        batching = {**flags, "enable_batching": True}
        result += [
            Configuration(engine, flags),
            Configuration(f"{engine}, batching", batching),
            Configuration(f"{engine}, batching with timeout", batching, timeout_policy),
        ]
    return result


def analyse(
    base_path: Path,
    signature_name: str,
    protocol: Literal["rest", "grpc"],
    choice: InputChoice,
    concurrency: Sequence[int],
    procedure: Procedure,
    progress: Callable[[int, int, str], None] = lambda done, total, step: None,
) -> list[Analysis]:
    """Serve a model with each configuration in turn, and measure each with closed loops.

    In a closed loop, each client sends its next request after the answer to its last one.

    Args:
      base_path: the directory that holds the numbered versions of the model.
      signature_name: the signature; "" for "serving_default".
      protocol: "rest" or "grpc".
      choice: the source of the inputs of the requests.
      concurrency: the numbers of simultaneous clients, each of which is measured.
      procedure: the length and the number of the time windows of each measurement.
      progress: takes the number of finished time windows, the number of all time windows, and a
        description of the current step.

    Returns:
      The measurements of each configuration.

    Raises:
      TpuserveError: the server starts with none of the configurations, or a request is refused.
    """
    analyses: list[Analysis] = []
    first_error: ServerNotStarted | None = None
    loads = [Load(concurrency=clients) for clients in concurrency]
    all_configurations = configurations()
    windows = procedure.max_windows * len(loads)
    for position, configuration in enumerate(all_configurations):

        def report(
            done: int,
            _: int,
            step: str,
            position: int = position,
            name: str = configuration.name,
        ) -> None:
            total = len(all_configurations) * windows
            progress(position * windows + done, total, f"{name}: {step}")

        report(0, 0, "starting the server")
        try:
            results = _measure(
                base_path, configuration, signature_name, protocol, choice, loads, procedure, report
            )
        except ServerNotStarted as error:
            first_error = first_error or error
            analyses.append(Analysis(configuration, error=str(error)))
            continue
        analyses.append(Analysis(configuration, results))
    if first_error is not None and not any(analysis.results for analysis in analyses):
        raise first_error
    return analyses


def choose(
    analyses: Sequence[Analysis], percentile: float, limit_ms: float = float("inf")
) -> Choice | None:
    """Return the configuration with the most requests per second within a latency limit.

    Args:
      analyses: the measurements of each configuration.
      percentile: the percentile of the latency, such as 99.
      limit_ms: the limit of this percentile in milliseconds.

    Returns:
      The configuration and its best result; None if no measurement without errors is within the
      limit.
    """
    choices = [
        Choice(analysis, result)
        for analysis in analyses
        if (result := benchmark.best_under(analysis.results, percentile, limit_ms)) is not None
    ]
    return max(choices, key=lambda choice: choice.result.requests_per_second, default=None)


def model_name(base_path: Path) -> str:
    """Return the name under which a model is measured: the name of its base path's directory."""
    return base_path.resolve().name or "model"


def _measure(
    base_path: Path,
    configuration: Configuration,
    signature_name: str,
    protocol: Literal["rest", "grpc"],
    choice: InputChoice,
    loads: Sequence[Load],
    procedure: Procedure,
    report: Callable[[int, int, str], None],
) -> list[Result]:
    name = model_name(base_path)
    with tempfile.TemporaryDirectory() as directory:
        flags = dict(configuration.flags)
        if configuration.batching_parameters:
            parameters = Path(directory, "batching.config")
            parameters.write_text(configuration.batching_parameters)
            flags["batching_parameters_file"] = parameters
        with local_server.serve({name: base_path}, **flags) as server:
            url = server.rest_url if protocol == "rest" else server.grpc_url
            target = Target(url, name, signature_name=signature_name)
            requests = benchmark.choose_requests(target, choice)
            return benchmark.run(target, requests, loads, procedure, report)
