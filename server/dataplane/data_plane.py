"""The data plane: answers inference, status and metadata requests for every protocol."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from server.dataplane import (
    classify,
    examples,
    method_names,
    model_list,
    multi_inference,
    regress,
    state_gauges,
)
from server.dataplane.model_spec import ModelSpec
from server.dataplane.request_logger import RequestLogger
from server.dataplane.results import Classification, Metadata, ModelStatus, Prediction, Regression
from server.metrics import Metrics
from server.models.manager import Manager, statuses
from server.servables.servable import Array, Servable, VersionStatus
from tpuserve.errors import InvalidInput, ModelExecutionError, UnsupportedModel
from tpuserve.saved_model import signature as signatures
from tpuserve.saved_model.signature import Signature

logger = logging.getLogger(__name__)

ReadInputs: TypeAlias = Callable[[Signature], Mapping[str, Array]]
Reload: TypeAlias = Callable[[Any], None]

SIGNATURE_DEF = "signature_def"


class DataPlane:
    """Answers requests for the REST and gRPC frontends.

    The frontends admit and count requests, because some requests never reach the data plane. Every
    inference method raises ModelNotFound if no such model or version is available, and
    DeadlineExceeded if the time limit passes.
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
    ) -> None:
        """Create the data plane of a server.

        Args:
          manager: owns the models.
          metrics: records the runs of models; None for metrics of its own.
          request_log: logs sampled requests; None for no log.
          check_method_names: whether a signature's method must match the API of the request.
          reload: replaces the model configuration; None for a fixed configuration.
          configured: returns the names of the configured models; None where they are unknown.
        """
        self._manager = manager
        self._metrics = Metrics() if metrics is None else metrics
        self._request_log = request_log
        self._check_method_names = check_method_names
        self._reload = reload
        self._configured = configured
        state_gauges.register_state_gauges(self._metrics, manager)

    def predict(
        self,
        spec: ModelSpec,
        read_inputs: ReadInputs,
        output_filter: Sequence[str] = (),
        *,
        timeout_ms: float | None = None,
    ) -> Prediction:
        """Run a model on inputs, in the calling thread unless requests are batched.

        Args:
          spec: the model, version and signature.
          read_inputs: takes the signature and returns the request's inputs, alias → array. It is
            called once the signature is known, because the signature determines how a request
            is parsed.
          output_filter: the aliases of the requested outputs; empty for all outputs.
          timeout_ms: the time limit in milliseconds; None for no limit.

        Raises:
          SignatureNotFound: the model has no such signature.
          WrongMethodName: check_method_names is set and the signature has another method.
          InvalidInputNames: the request's aliases do not match the signature.
          InvalidTensor: an input's type or shape does not match the signature or the model.
          ModelExecutionError: the model failed.
        """
        with self._manager.get_servable_handle(spec.model, spec.version, spec.label) as servable:
            name = spec.effective_signature_name
            signature = signatures.find_signature(servable.model.signatures, name)
            if self._check_method_names:
                method_names.check_predict(signature)
            request_inputs = read_inputs(signature)
            # Call `complete`, which adds the defaults of omitted inputs, only where inputs are
            # missing or unknown: nearly all requests have every input, and the comparison is fast.
            is_complete = request_inputs.keys() == signature.inputs.keys()
            inputs = request_inputs if is_complete else signature.complete(request_inputs)
            output_names = list(output_filter) or None
            if output_names:
                signature.check_outputs(output_names)
            outputs = self._run(servable, "Predict", name, inputs, output_names, timeout_ms)
            answer = Prediction(spec.model, servable.version, name, outputs)
        if self._request_log is not None and self._request_log.should_log(spec.model):
            self._request_log.predict(answer, request_inputs, output_filter)
        return answer

    def classify(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
    ) -> Classification:
        """Classify examples.

        Args:
          spec: the model, version and signature.
          serialized: serialised tf.train.Example messages; the answer has a row for each.
          timeout_ms: the time limit in milliseconds; None for no limit.

        Raises:
          InvalidInput: the model has no such classification signature, the request has no
            examples, or an output has an unexpected type or shape.
          ModelExecutionError: the model failed.
        """
        with self._manager.get_servable_handle(spec.model, spec.version, spec.label) as servable:
            name = spec.effective_signature_name
            signature = examples.find_signature(servable.model.signatures, name)
            output_names = classify.classification_outputs(signature, self._check_method_names)
            inputs = {examples.ALIAS: examples.encode(serialized)}
            outputs = self._run(servable, "Classify", name, inputs, output_names, timeout_ms)
            classes, scores = classify.read_classification(outputs, len(serialized))
            answer = Classification(spec.model, servable.version, name, classes, scores)
        if self._request_log is not None and self._request_log.should_log(spec.model):
            self._request_log.classify(answer, serialized)
        return answer

    def regress(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
    ) -> Regression:
        """Regress examples; arguments and errors are those of `classify`."""
        with self._manager.get_servable_handle(spec.model, spec.version, spec.label) as servable:
            name = spec.effective_signature_name
            signature = examples.find_signature(servable.model.signatures, name)
            output_names = regress.regression_outputs(signature, self._check_method_names)
            inputs = {examples.ALIAS: examples.encode(serialized)}
            outputs = self._run(servable, "Regress", name, inputs, output_names, timeout_ms)
            values = regress.read_regression(outputs, len(serialized))
            answer = Regression(spec.model, servable.version, name, values)
        if self._request_log is not None and self._request_log.should_log(spec.model):
            self._request_log.regress(answer, serialized)
        return answer

    def multi_inference(
        self,
        tasks: Sequence[multi_inference.Task],
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
    ) -> list[Classification | Regression]:
        """Classify and regress examples with several signatures of one model.

        The model, version and label of the first task apply to all tasks. As in TensorFlow Serving,
        the request is not counted in request_count.

        Args:
          tasks: the model specification of each task, with "tensorflow/serving/classify" or
            "tensorflow/serving/regress".
          serialized: serialised tf.train.Example messages.
          timeout_ms: the time limit in milliseconds; None for no limit.

        Raises:
          InvalidInput: the tasks name several models or an unsuitable signature.
          UnsupportedModel: a task's method is neither Classify nor Regress.
          ModelExecutionError: the model failed.
        """
        spec = multi_inference.model_spec_of_request(tasks)
        with self._manager.get_servable_handle(spec.model, spec.version, spec.label) as servable:
            signatures_by_name = servable.model.signatures
            plan = multi_inference.make_plan(tasks, signatures_by_name, self._check_method_names)
            packed = examples.encode(serialized)
            self._metrics.examples(spec.model, len(serialized))
            started = time.perf_counter_ns()
            outputs = multi_inference.run_plan(servable.runner, plan, packed, timeout_ms)
            self._record_runtime(spec.model, "MultiInference", started)
            version = servable.version
            answers = multi_inference.read_answers(
                spec.model, version, plan, outputs, len(serialized)
            )
        if self._request_log is not None and self._request_log.should_log(spec.model):
            self._request_log.multi_inference(tasks, answers, serialized)
        return answers

    def metadata(self, spec: ModelSpec, fields: Sequence[str]) -> Metadata:
        """Return the signatures of a version.

        Args:
          spec: the model and version.
          fields: the requested metadata fields; only "signature_def" exists.

        Raises:
          InvalidInput: no field or an unknown field is requested.
        """
        if not fields:
            raise InvalidInput("GetModelMetadataRequest must specify at least one metadata_field")
        for field in fields:
            if field != SIGNATURE_DEF:
                raise InvalidInput(f"Metadata field {field} is not supported")
        with self._manager.get_servable_handle(spec.model, spec.version, spec.label) as servable:
            return Metadata(spec.model, servable.version, servable.model.signature_defs)

    def status(self, model: str, version: int | None = None) -> list[VersionStatus]:
        """Return the status of a model's versions, or of one version; newest first.

        Raises:
          ModelNotFound: no version of the model is known, or the given version is not.
        """
        return self._manager.status(model, version)

    def models(self) -> Mapping[str, list[VersionStatus]]:
        """Return the status of all versions of all models: model name → statuses, newest first."""
        return statuses(self._manager, self._manager.names())

    def list_models(self) -> dict[str, ModelStatus]:
        """List every model that is configured or still has versions: model name → status."""
        configured = None if self._configured is None else frozenset(self._configured())
        return model_list.list_models(self._manager, configured)

    @property
    def is_available(self) -> bool:
        """Whether any version of any model can answer requests."""
        return any(map(self._manager.is_available, self._manager.names()))

    def reload(self, config: Any) -> None:
        """Replace the model configuration; blocks until its models are available or have failed.

        Raises:
          UnsupportedModel: this server has a fixed configuration.
          TpuserveError: the configuration is invalid, or a model does not load.
        """
        if self._reload is None:
            raise UnsupportedModel(
                "this server's model configuration is fixed and cannot be reloaded."
            )
        self._reload(config)

    def _run(
        self,
        servable: Servable,
        api: str,
        name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None,
        timeout_ms: float | None,
    ) -> Mapping[str, Array]:
        started = time.perf_counter_ns()
        try:
            outputs = servable.runner.run(name, inputs, output_names, timeout_ms=timeout_ms)
        except ModelExecutionError as error:
            # Log the error for the operator, because the model is at fault and not the client.
            logger.error("%s: signature %s failed: %s", servable, name, error)
            raise
        self._record_runtime(servable.name, api, started)
        return outputs

    def _record_runtime(self, model: str, api: str, started: int) -> None:
        self._metrics.runtime(model, api, (time.perf_counter_ns() - started) // 1000)
