"""Measures a model with several settings of the server, and chooses the best for a latency goal.

Measuring all combinations of the settings would take hours.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from tpuserve.bench import benchmark, configurations, inputs, model_files
from tpuserve.bench.benchmark import GENERATED_ADVICE, InputChoice, Target
from tpuserve.bench.configurations import Configuration, ModelEngine
from tpuserve.bench.inputs import Requests
from tpuserve.bench.load import Load
from tpuserve.bench.model_files import ModelFiles
from tpuserve.bench.windows import Procedure, Result
from tpuserve.errors import TpuserveError
from tpuserve.local_server.server import LocalServer, serve

START_SECONDS = 10
"""An estimate of the time in which a server starts, for the expected total."""
_MIN_WINDOW_SECONDS = 0.2


class TimeBudget:
    """Divides the time that is left equally among the configurations that are left.

    A configuration that needs less time than its share leaves more for the next ones.
    """

    def __init__(self, seconds: float, num_configurations: int) -> None:
        self._deadline = time.monotonic() + seconds
        self._num_left = num_configurations
        self._share_end = self._deadline

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self._deadline

    def begin_configuration(self) -> None:
        """Begin the share of the next configuration, which includes the start of its server."""
        now = time.monotonic()
        self._share_end = now + max(0.0, self._deadline - now) / max(1, self._num_left)
        self._num_left -= 1

    def skip_configuration(self) -> None:
        """Leave out a configuration, and divide its share among the remaining configurations."""
        self._num_left -= 1

    def shorten(self, procedure: Procedure, num_loads: int) -> Procedure:
        """Return a procedure whose windows are short enough for the share of a configuration.

        The share is the time for all loads of the configuration that was begun last.
        """
        available = (self._share_end - time.monotonic()) / num_loads
        smallest = _MIN_WINDOW_SECONDS / procedure.window_s
        factor = min(1.0, max(available / longest_seconds(procedure), smallest))
        return replace(
            procedure,
            window_s=procedure.window_s * factor,
            warm_up_s=procedure.warm_up_s * factor,
        )


def longest_seconds(procedure: Procedure) -> float:
    """Return the longest time that the measurement of one load may take, in seconds."""
    return procedure.warm_up_s + procedure.max_windows * procedure.window_s


Progress: TypeAlias = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Goal:
    """The largest latency that a configuration may have.

    Attributes:
      limit_ms: the limit of this percentile in milliseconds; infinity for no limit.
    """

    percentile: float = 99.0
    limit_ms: float = float("inf")


@dataclass(frozen=True)
class Analysis:
    """The measurements of a configuration.

    Attributes:
      results: the result of each load; empty if nothing was measured.
      error: why nothing was measured; "" if there are results.
    """

    configuration: Configuration
    results: Sequence[Result] = field(default_factory=list)
    error: str = ""


@dataclass(frozen=True)
class Choice:
    """The configuration that answers the most requests per second within a latency goal."""

    analysis: Analysis
    result: Result


@dataclass(frozen=True)
class Plan:
    """The model, requests and loads that an analysis measures, with the limits.

    Attributes:
      signature_name: the signature that all requests call. If it is "", a logged request calls the
        signature that it names, and a request that names none calls "serving_default".
      procedure: the time windows of each measurement. They are shortened to fit into `seconds`.
      import_ops: Python packages and paths of libraries that register ops of the model.
    """

    model: ModelFiles
    requests: Requests
    signature_name: str
    protocol: Literal["rest", "grpc"]
    loads: Sequence[Load]
    procedure: Procedure
    goal: Goal
    seconds: float
    import_ops: Sequence[str] = ()

    @property
    def engines(self) -> list[ModelEngine]:
        """The engines to measure: those of this machine that can run the model."""
        return configurations.find_engines(self.model.tag_sets)

    @property
    def num_configurations(self) -> int:
        """The largest number of configurations that the analysis measures."""
        engines = self.engines
        num_timeouts = len(self.with_timeouts(engines[0]))
        return 2 * len(engines) + num_timeouts

    @property
    def expected_seconds(self) -> float:
        """The longest time that the analysis is expected to take."""
        measuring = len(self.loads) * longest_seconds(self.procedure)
        return min(self.seconds, self.num_configurations * (START_SECONDS + measuring))

    def with_timeouts(self, engine: ModelEngine) -> list[Configuration]:
        """Return an engine's configurations, one for each batch size and timeout to measure."""
        rows = [
            len(array)
            for request in self.requests.inputs
            for array in request.inputs.values()
            if array.ndim
        ]
        return configurations.with_timeouts(engine, max(rows, default=1) or 1, self.goal.limit_ms)


Measure: TypeAlias = Callable[[Plan, Configuration, TimeBudget, Progress], Analysis]
"""A function that measures a configuration; see `serve_and_measure`."""


def read_model_and_requests(
    base_path: Path, signature_name: str, choice: InputChoice
) -> tuple[ModelFiles, Requests]:
    """Read the files of a model, and read or generate requests that its graph accepts.

    Args:
      signature_name: the signature. "" means the signature that the first request of a log names,
        and "serving_default" if there is no log or the request names none.
    """
    if choice.request_log is not None:
        logged = inputs.read_request_log(choice.request_log, model_files.model_name(base_path))
        model = model_files.read_model(base_path, signature_name or logged[0].signature_name)
        return model, Requests(logged)
    model = model_files.read_model(base_path, signature_name)
    if choice.file is not None:
        return model, Requests(inputs.read_file(choice.file, model.signature))
    generated = model_files.generate_requests(model, choice.batch_size, choice.shapes)
    return model, Requests(generated, GENERATED_ADVICE)


def serve_and_measure(
    plan: Plan, configuration: Configuration, budget: TimeBudget, progress: Progress
) -> Analysis:
    """Serve a model with a configuration, and measure the loads.

    Args:
      progress: takes the number of finished windows, the number of all windows, and a description
        of the current step.
    """
    name = plan.model.model_name
    with tempfile.TemporaryDirectory() as directory:
        flags = {"import_ops": plan.import_ops, **configuration.flags}
        if configuration.batching_parameters:
            parameters = Path(directory, "batching.config")
            parameters.write_text(configuration.batching_parameters)
            flags["batching_parameters_file"] = parameters
        environment = configuration.engine.environment
        models = {name: plan.model.base_path}
        with serve(models, environment=environment, **flags) as server:
            if reason := _find_other_engine(server, name, configuration):
                return Analysis(configuration, error=reason)
            url = server.rest_url if plan.protocol == "rest" else server.grpc_url
            target = Target(url, name, signature_name=plan.signature_name)
            procedure = budget.shorten(plan.procedure, len(plan.loads))
            results = benchmark.run_benchmark(
                target, plan.requests, plan.loads, procedure, progress
            )
            return Analysis(configuration, results)


def analyse(
    plan: Plan,
    progress: Progress = lambda done, total, step: None,
    measure: Measure = serve_and_measure,
) -> list[Analysis]:
    """Measure closed loops with each configuration in turn.

    Args:
      progress: takes the number of finished windows, the number of all windows, and a description
        of the current step.
    """
    sweep = _Sweep(plan, progress, measure)
    for engine in plan.engines:
        if sweep.measure(configurations.without_batching(engine)):
            sweep.measure(configurations.with_batching(engine))
        else:
            sweep.skip()
    best = find_leader(sweep.analyses, plan.goal)
    if best is None:
        assert sweep.first_error is not None
        raise sweep.first_error
    for configuration in plan.with_timeouts(best.configuration.engine):
        sweep.measure(configuration)
    return sweep.analyses


def choose(analyses: Sequence[Analysis], goal: Goal) -> Choice | None:
    """Return the configuration with the most requests per second within a latency goal.

    Returns:
      None if no load of any configuration is within the goal.
    """
    choices = [
        Choice(analysis, result)
        for analysis in analyses
        if (result := benchmark.best_under(analysis.results, goal.percentile, goal.limit_ms))
        is not None
    ]
    return max(choices, key=lambda choice: choice.result.requests_per_second, default=None)


def find_leader(analyses: Sequence[Analysis], goal: Goal) -> Analysis | None:
    """Return the measurements of the best configuration so far.

    If no configuration is within the goal, the best one is that with the lowest latency.

    Returns:
      None if nothing was measured.
    """
    choice = choose(analyses, goal)
    if choice is not None:
        return choice.analysis
    measured = [analysis for analysis in analyses if analysis.results]
    return min(measured, key=lambda analysis: _lowest_latency(analysis, goal), default=None)


class _Sweep:
    """Measures one configuration after the other, until the time is over."""

    def __init__(self, plan: Plan, progress: Progress, measure: Measure) -> None:
        self.analyses: list[Analysis] = []
        self.first_error: TpuserveError | None = None
        self._plan = plan
        self._progress = progress
        self._measure_one = measure
        self._num_windows = plan.procedure.max_windows * len(plan.loads)
        self._total = plan.num_configurations * self._num_windows
        self._budget = TimeBudget(plan.seconds, plan.num_configurations)

    def measure(self, configuration: Configuration) -> bool:
        analysis = self._measure(configuration)
        self.analyses.append(analysis)
        return bool(analysis.results)

    def skip(self) -> None:
        """Leave out a configuration of the plan, and give its time to the remaining ones."""
        self._budget.skip_configuration()
        self._total -= self._num_windows

    def _measure(self, configuration: Configuration) -> Analysis:
        if self._budget.is_over and any(analysis.results for analysis in self.analyses):
            seconds = f"{self._plan.seconds:g} s"
            return Analysis(
                configuration, error=f"not measured within {seconds}. Give a longer --seconds."
            )
        position = len(self.analyses) * self._num_windows

        def report(done: int, _: int, step: str) -> None:
            self._progress(position + done, self._total, f"{configuration.name}: {step}")

        report(0, 0, "starting the server")
        self._budget.begin_configuration()
        try:
            return self._measure_one(self._plan, configuration, self._budget, report)
        except TpuserveError as error:
            self.first_error = self.first_error or error
            return Analysis(configuration, error=str(error))


def _find_other_engine(server: LocalServer, name: str, configuration: Configuration) -> str:
    """Return why TensorFlow runs a model that XLA was asked to run; "" if XLA runs the model."""
    if configuration.flags.get("engine") != "xla":
        return ""
    with server.client() as client:
        return next((version.error for version in client.versions(name) if version.error), "")


def _lowest_latency(analysis: Analysis, goal: Goal) -> float:
    latencies = [
        result.percentiles_ms[goal.percentile]
        for result in analysis.results
        if result.num_requests and not result.num_errors
    ]
    return min(latencies, default=float("inf"))
