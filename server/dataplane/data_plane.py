"""The data plane: answers inference, status and metadata requests of all protocols."""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from server.admission import nonblocking
from server.dataplane import (
    classify,
    example_method,
    method_names,
    model_list,
    multi_inference,
    profiler,
    regress,
    state_gauges,
)
from server.dataplane.example_method import ExampleMethod, Result
from server.dataplane.inference_statistics import VersionRecorders, count_rows
from server.dataplane.model_spec import ModelSpec
from server.dataplane.request_logger import RequestLogger
from server.dataplane.results import (
    Classification,
    Metadata,
    ModelStatus,
    Prediction,
    Regression,
    SampleRequest,
    Statistics,
)
from server.metrics import Metrics
from server.metrics.timeline import Timeline
from server.models.config_manager import ModelConfigManager
from server.models.manager import Manager, statuses
from server.models.residency import Residency
from server.request import RequestContext
from server.scheduling.run_limits import RunLimits
from server.servables.pending import Pending
from server.servables.servable import Array, Model, Servable, VersionStatus
from tpuserve.errors import (
    InvalidInput,
    ModelExecutionError,
    TpuserveError,
    UnsupportedModel,
)
from tpuserve.saved_model import signature as signatures

logger = logging.getLogger(__name__)

Outputs = TypeVar("Outputs")
Reload: TypeAlias = Callable[[Any], None]
MakeSample: TypeAlias = Callable[[Model, Path, str], SampleRequest]
ReadInputs: TypeAlias = Callable[[signatures.Signature], Mapping[str, Array]]
StartedRun: TypeAlias = Mapping[str, Array] | Pending[Mapping[str, Array]]

SIGNATURE_DEF = "signature_def"


class DataPlane:
    """Answers requests for the REST and gRPC frontends.

    The frontends, and not the data plane, count the requests in flight and refuse requests over the
    limit, because some requests never reach the data plane.

    Args:
      metrics: records the runs of models; None for new metrics that nobody reads.
      check_method_names: whether the method_name of a signature must match the method of the
        request, such as Predict.
      reload: replaces the model configuration. None if the configuration of the server cannot
        be changed.
      run_limits: takes a model's name, and returns the limits of the model's running and
        waiting requests; returns None if no such model is configured.
      load_model: takes a model's name, and loads the model; None if models cannot be loaded on
        request.
      unload_model: takes a model's name, and unloads the model; None if models cannot be
        unloaded on request.
      config_manager: adds models to the configuration and removes them; None if the
        configuration cannot be changed.
      residency: decides which models are in memory; None if all are.
      make_sample: takes a model, its directory and the name of a signature, and returns a valid
        Predict request; None if sample requests cannot be generated.
    """

    def __init__(
        self,
        manager: Manager,
        *,
        metrics: Metrics | None = None,
        request_log: RequestLogger | None = None,
        check_method_names: bool = False,
        reload: Reload | None = None,
        configured: Callable[[], Collection[str]] | None = None,
        run_limits: Callable[[str], RunLimits | None] = lambda model: None,
        load_model: Callable[[str], None] | None = None,
        unload_model: Callable[[str], None] | None = None,
        config_manager: ModelConfigManager | None = None,
        make_sample: MakeSample | None = None,
        residency: Residency | None = None,
    ) -> None:
        self.residency = residency
        self._manager = manager
        self._metrics = Metrics() if metrics is None else metrics
        self._request_log = request_log
        self._check_method_names = check_method_names
        self._reload = reload
        self._configured = configured
        self._run_limits = run_limits
        self._load_model = load_model
        self._unload_model = unload_model
        self._config_manager = config_manager
        self._make_sample = make_sample
        # Model version → signature name → sample request, or the error if no sample request can be
        # generated. The results are cached, because generating a sample can take about one second.
        self._samples: weakref.WeakKeyDictionary[
            Servable, dict[str, SampleRequest | TpuserveError]
        ] = weakref.WeakKeyDictionary()
        self._samples_lock = threading.Lock()
        self._recorders = VersionRecorders()
        state_gauges.register_state_gauges(self._metrics, manager)
        if residency is not None:
            self._metrics.watch_model_bytes(
                lambda: {(name,): size for name, size in residency.loaded_bytes().items()}
            )

    def run_limits(self, model: str) -> RunLimits | None:
        """Return the limits of a model's running and waiting requests.

        The result is None for an unknown model.
        """
        return self._run_limits(model)

    def start_predict(
        self,
        context: RequestContext,
        spec: ModelSpec,
        read_inputs: ReadInputs,
        output_filter: Sequence[str] = (),
    ) -> Prediction | Pending[Prediction]:
        """Begin to answer a Predict request.

        Args:
          read_inputs: parses the request, which needs the signature; returns alias → array.
          output_filter: the aliases of the requested outputs; empty for all outputs.

        Returns:
          The answer; a Pending if the request waits for a batch. The caller must then call its
          `finish`, until which the version stays loaded.

        Raises:
          CodedError: the server checks the method_name of signatures, and Predict may not run
            a signature with this method_name.
          InvalidTensor: an input's type or shape does not match the signature or the model.
        """
        timeline = context.timeline
        servable = self._manager.get_servable_handle(spec.model, spec.version, spec.label).acquire()
        try:
            name, signature = spec.find_signature(servable.model.signatures)
            timeline.record_version(spec.model, servable.version, name, servable.metagraph)
            if self._check_method_names:
                method_names.check_predict(signature)
            request_inputs = read_inputs(signature)
            # If the names of the inputs differ from the signature, add the default values of
            # omitted inputs, or raise an error.
            is_complete = request_inputs.keys() == signature.inputs.keys()
            inputs = request_inputs if is_complete else signature.complete(request_inputs)
            output_names = list(output_filter) or None
            if output_names:
                signature.check_outputs(output_names)
            outputs = self._start_recorded_run(context, servable, name, inputs, output_names)
        except BaseException:
            servable.release()
            raise

        def finish() -> Prediction:
            try:
                results = self._finish_recorded_run(outputs, servable, name, inputs, timeline)
                self._record_runtime(servable.name, "Predict", timeline.decoded_ns)
                answer = Prediction(spec.model, servable.version, name, results)
            finally:
                servable.release()
            if self._request_log is not None and self._request_log.should_log(spec.model):
                self._request_log.predict(answer, request_inputs, output_filter)
            return answer

        return outputs.then(finish) if isinstance(outputs, Pending) else finish()

    def start_classify(
        self,
        context: RequestContext,
        spec: ModelSpec,
        serialized: Sequence[bytes],
    ) -> Classification | Pending[Classification]:
        """Begin to answer a Classify request.

        Raises:
          InvalidInput: the model has no signature of this name, the signature is not for
            classification, the request has no examples, or an output has an unexpected type or
            shape.
        """

        def log(answer: Classification) -> None:
            if self._request_log is not None and self._request_log.should_log(spec.model):
                self._request_log.classify(answer, serialized)

        return self._start_on_examples(context, classify.METHOD, spec, serialized, log)

    def start_regress(
        self,
        context: RequestContext,
        spec: ModelSpec,
        serialized: Sequence[bytes],
    ) -> Regression | Pending[Regression]:
        """Begin to answer a Regress request; see `start_classify`."""

        def log(answer: Regression) -> None:
            if self._request_log is not None and self._request_log.should_log(spec.model):
                self._request_log.regress(answer, serialized)

        return self._start_on_examples(context, regress.METHOD, spec, serialized, log)

    def start_multi_inference(
        self,
        context: RequestContext,
        tasks: Sequence[multi_inference.Task],
        serialized: Sequence[bytes],
    ) -> list[Classification | Regression] | Pending[list[Classification | Regression]]:
        """Begin to answer a MultiInference request, which runs several signatures of one model.

        The model, version and version label of the first task apply to all tasks.

        Args:
          tasks: pairs (model specification, method name). The method name is
            "tensorflow/serving/classify" or "tensorflow/serving/regress".

        Raises:
          InvalidInput: the tasks name different models, two tasks name the same signature, a task
            names a signature that is unknown or that the task's method cannot run, the request has
            no examples, or an output has an unexpected type or shape.
          UnsupportedModel: the method of a task is neither Classify nor Regress.
        """
        spec = multi_inference.model_spec_of_request(tasks)
        timeline = context.timeline
        servable = self._manager.get_servable_handle(spec.model, spec.version, spec.label).acquire()
        try:
            plan = multi_inference.make_plan(
                tasks, servable.model.signatures, self._check_method_names
            )
            names = " and ".join(sorted(plan.methods))
            timeline.record_version(spec.model, servable.version, names, servable.metagraph)
            packed = example_method.encode(serialized)
            timeline.end_decoding()
            count_examples = partial(self._metrics.examples_received, spec.model, len(serialized))
            try:
                with self._recording_failure(servable, timeline):
                    outputs = servable.runner.start_multi(
                        context, plan.outputs, {example_method.ALIAS: packed}
                    )
            except nonblocking.WouldBlock:
                raise  # The request comes again, in a thread that may run it.
            except Exception:
                count_examples()
                raise
            count_examples()
        except BaseException:
            servable.release()
            raise

        def finish() -> list[Classification | Regression]:
            try:
                with self._recording_failure(servable, timeline):
                    results = outputs.finish() if isinstance(outputs, Pending) else outputs
                inputs = {example_method.ALIAS: packed}
                self._end_run(timeline, inputs)
                self._recorders.find(servable).record_success(inputs, timeline)
                self._record_runtime(spec.model, "MultiInference", timeline.decoded_ns)
                answers = multi_inference.read_answers(
                    spec.model, servable.version, plan, results, len(serialized)
                )
            finally:
                servable.release()
            if self._request_log is not None and self._request_log.should_log(spec.model):
                self._request_log.multi_inference(tasks, answers, serialized)
            return answers

        return outputs.then(finish) if isinstance(outputs, Pending) else finish()

    def metadata(self, spec: ModelSpec, fields: Sequence[str]) -> Metadata:
        """Return the signatures of a model version."""
        if not fields:
            raise InvalidInput("GetModelMetadataRequest must specify at least one metadata_field")
        for field in fields:
            if field != SIGNATURE_DEF:
                raise InvalidInput(f"Metadata field {field} is not supported")
        with self._manager.get_servable_handle(
            spec.model, spec.version, spec.label, must_be_loaded=True
        ) as servable:
            signatures_of_model = {
                name: replace(signature, defaults={})
                for name, signature in servable.model.signatures.items()
            }
            return Metadata(
                spec.model, servable.version, servable.model.signature_defs, signatures_of_model
            )

    def sample_request(self, spec: ModelSpec) -> SampleRequest:
        """Return a valid Predict request for a signature, as an example for users.

        `spec` is the model, version and signature.
        """
        name = spec.effective_signature_name
        with self._manager.get_servable_handle(
            spec.model, spec.version, spec.label, must_be_loaded=True
        ) as servable:
            signatures.find_signature(servable.model.signatures, name)
            if self._make_sample is None or servable.directory is None:
                raise InvalidInput(
                    f"this server cannot make an example for signature {name!r} of "
                    f"{spec.model}. Write the inputs yourself."
                )
            # Generate one sample at a time, to limit the memory: reading the graph of a model can
            # need gigabytes, and the limit of requests in flight does not apply to requests for
            # samples.
            with self._samples_lock:
                known = self._samples.setdefault(servable, {})
                if name not in known:
                    try:
                        known[name] = self._make_sample(servable.model, servable.directory, name)
                    except TpuserveError as error:
                        known[name] = error
                    except Exception as error:
                        logger.exception("%s: signature %s has no example", spec.model, name)
                        known[name] = InvalidInput(
                            f"no example for signature {name!r} of {spec.model} can be made: "
                            f"{error}. Write the inputs yourself."
                        )
                sample = known[name]
            if isinstance(sample, TpuserveError):
                raise sample.with_traceback(None)
            return sample

    def statistics(self, spec: ModelSpec) -> Statistics:
        """Return the statistics of the runs and batches of a model version since it was loaded."""
        with self._manager.get_servable_handle(
            spec.model, spec.version, spec.label, must_be_loaded=True
        ) as servable:
            batching = getattr(servable.runner, "statistics", None)
            inferences = self._recorders.find(servable).snapshot()
            batch_runs = getattr(servable.runner, "batch_runs", {})
            for rows, (count, run_ns) in batch_runs.items():
                inferences.add_runs(rows, count, run_ns)
            return Statistics(spec.model, servable.version, batching, inferences)

    def status(self, model: str, version: int | None = None) -> list[VersionStatus]:
        """Return the status of one version of a model, or of all its versions, newest first."""
        return self._manager.status(model, version)

    def models(self) -> Mapping[str, list[VersionStatus]]:
        """Return the status of all versions of all models.

        The result is model name → statuses of the versions, newest first.
        """
        return statuses(self._manager, self._manager.names())

    def list_models(self) -> dict[str, ModelStatus]:
        """Return the status of every model that is configured or still has versions.

        The result is model name → status.
        """
        configured = None if self._configured is None else frozenset(self._configured())
        sizes = {} if self.residency is None else self.residency.loaded_bytes()
        return model_list.list_models(self._manager, configured, sizes)

    def can_answer(self, model: str, version: int | None = None) -> bool:
        """Return whether a version of a model, or any, answers requests, or is loaded by one."""
        return self._manager.is_available(model, version)

    @property
    def is_available(self) -> bool:
        """Whether at least one version of any model can answer requests."""
        return any(map(self._manager.is_available, self._manager.names()))

    def start_profiler(self) -> str:
        """Start TensorFlow's profiler server if it is not running; return its "host:port"."""
        return profiler.start_profiler_server()

    def record_profiler_event(self, seconds: float, requests_in_flight: int) -> None:
        """Wait for some seconds, and record the wait as an event of TensorFlow's profiler.

        Without such events the profile of an idle server would be empty, and TensorFlow's client
        refuses an empty profile.
        """
        profiler.record_event(seconds, requests_in_flight)

    def reload(self, config: Any) -> None:
        """Replace the model configuration, and wait until its models are available or have failed.

        `config` is the new `server.config.model_config.ModelServerConfig`.
        """
        if self._reload is None:
            raise _fixed_configuration_error()
        self._reload(config)

    def load_model(self, model: str) -> None:
        """Load a model of the configuration, and block until it is available or has failed."""
        if self._load_model is None:
            raise _fixed_configuration_error()
        self._load_model(model)
        if self.residency is not None:
            self.residency.load(model)

    def unload_model(self, model: str) -> None:
        """Unload all versions of a model.

        The requests in flight of the model are still answered.
        """
        if self._unload_model is None:
            raise _fixed_configuration_error()
        self._unload_model(model)

    def base_paths(self) -> Mapping[str, str]:
        """Return model name → base path, for all configured models."""
        return self._get_config_manager().base_paths()

    def add_model(self, model: str, base_path: str) -> None:
        """Add a model to the configuration, and wait until it is available or has failed."""
        self._get_config_manager().add_model(model, base_path)

    def remove_model(self, model: str) -> None:
        """Remove a model from the configuration, and unload its versions."""
        self._get_config_manager().remove_model(model)

    def _get_config_manager(self) -> ModelConfigManager:
        if self._config_manager is None:
            raise _fixed_configuration_error()
        return self._config_manager

    def _start_on_examples(
        self,
        context: RequestContext,
        method: ExampleMethod[Result],
        spec: ModelSpec,
        serialized: Sequence[bytes],
        log: Callable[[Result], None],
    ) -> Result | Pending[Result]:
        """Begin to run a signature on serialised examples, for Classify and Regress."""
        timeline = context.timeline
        servable = self._manager.get_servable_handle(spec.model, spec.version, spec.label).acquire()
        try:
            name = spec.effective_signature_name
            output_names = method.find_outputs(
                servable.model.signatures, name, self._check_method_names
            )
            timeline.record_version(spec.model, servable.version, name, servable.metagraph)
            inputs = {example_method.ALIAS: example_method.encode(serialized)}
            outputs = self._start_recorded_run(context, servable, name, inputs, output_names)
        except BaseException:
            servable.release()
            raise

        def finish() -> Result:
            try:
                results = self._finish_recorded_run(outputs, servable, name, inputs, timeline)
                self._record_runtime(servable.name, method.api, timeline.decoded_ns)
                answer = method.read_answer(
                    spec.model, servable.version, name, results, len(serialized)
                )
            finally:
                servable.release()
            log(answer)
            return answer

        return outputs.then(finish) if isinstance(outputs, Pending) else finish()

    def _start_recorded_run(
        self,
        context: RequestContext,
        servable: Servable,
        name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None,
    ) -> StartedRun:
        context.timeline.end_decoding()
        with self._recording_failure(servable, context.timeline):
            return _log_model_error(
                lambda: servable.runner.start(context, name, inputs, output_names), servable, name
            )

    def _finish_recorded_run(
        self,
        started: StartedRun,
        servable: Servable,
        name: str,
        inputs: Mapping[str, Array],
        timeline: Timeline,
    ) -> Mapping[str, Array]:
        try:
            outputs = _finish_run(started, servable, name)
        except Exception:
            self._recorders.find(servable).record_failure(timeline.decoded_ns)
            raise
        self._end_run(timeline, inputs)
        self._recorders.find(servable).record_success(inputs, timeline)
        return outputs

    @contextmanager
    def _recording_failure(self, servable: Servable, timeline: Timeline) -> Iterator[None]:
        """Record the run of a request as failed if the `with` body raises an error."""
        try:
            yield
        except nonblocking.WouldBlock:
            raise
        except Exception:
            self._recorders.find(servable).record_failure(timeline.decoded_ns)
            raise

    def _end_run(self, timeline: Timeline, inputs: Mapping[str, Array]) -> None:
        timeline.end_run()
        if not timeline.is_batched:
            timeline.run_rows = count_rows(inputs)
            self._metrics.model_run(timeline.labels, timeline.run_rows)

    def _record_runtime(self, model: str, api: str, started: int) -> None:
        self._metrics.run_measured(model, api, (time.perf_counter_ns() - started) // 1000)


def _fixed_configuration_error() -> UnsupportedModel:
    return UnsupportedModel("this server's model configuration is fixed and cannot be reloaded.")


def _finish_run(started: StartedRun, servable: Servable, name: str) -> Mapping[str, Array]:
    """Return the outputs of a run that `_start_run` has begun, and wait for them if necessary."""
    if isinstance(started, Pending):
        return _log_model_error(started.finish, servable, name)
    return started


def _log_model_error(compute: Callable[[], Outputs], servable: Servable, name: str) -> Outputs:
    try:
        return compute()
    except ModelExecutionError as error:
        logger.error("%s: signature %s failed: %s", servable, name, error)
        raise
