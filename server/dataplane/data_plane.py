"""What a client can ask, without a word of HTTP or gRPC."""

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
from server.dataplane.model_spec import Target
from server.dataplane.request_logger import Log
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
    """Answers requests; REST and gRPC are two faces of it.

    The faces hold requests against the server's limits and count them, since they know of those
    too that never get here. What every answer raises: ModelNotFound where there is no such model
    or version; DeadlineExceeded where it takes longer than it may.
    """

    def __init__(
        self,
        manager: Manager,
        *,
        metrics: Metrics | None = None,
        request_log: Log | None = None,
        check_method_names: bool = False,
        reload: Reload | None = None,
        configured: Callable[[], Collection[str]] | None = None,
    ) -> None:
        """Takes the manager of the models to answer with.

        Args:
          metrics: where runs are counted; None for nowhere that anybody sees.
          request_log: where some requests are written down; None for nowhere.
          check_method_names: whether a signature must be of the method it is asked through.
          reload: makes a configuration of models the one that is served.
          configured: the names of the models that are to be served; None where that is not known.
        """
        self._manager = manager
        self._metrics = Metrics() if metrics is None else metrics
        self._request_log = request_log
        self._check_method_names = check_method_names
        self._reload = reload
        self._configured = configured
        state_gauges.watch(self._metrics, manager)

    def predict(
        self,
        target: Target,
        read_inputs: ReadInputs,
        output_filter: Sequence[str] = (),
        *,
        timeout_ms: float | None = None,
    ) -> Prediction:
        """Runs a model on inputs, in the calling thread unless it is batched.

        Args:
          read_inputs: signature → the arrays of the request, by alias. Called once the signature
            is known, since only that tells how to read a request.
          output_filter: the outputs wanted; empty for all of them.
          timeout_ms: how long it may take; None for as long as it takes.

        Raises:
          SignatureNotFound: the model has no such signature.
          WrongMethodName: the signature was exported for no API, where that is checked.
          InvalidInputNames, InvalidTensor: inputs that the signature or the model refuses.
          ModelExecutionError: the model failed.
        """
        with self._manager.get_servable_handle(
            target.model, target.version, target.label
        ) as servable:
            name = target.effective_signature_name
            signature = signatures.find_signature(servable.model.signatures, name)
            if self._check_method_names:
                method_names.check_predict(signature)
            sent = read_inputs(signature)
            # Nearly all are complete, and a look is cheaper than a call.
            is_complete = sent.keys() == signature.inputs.keys()
            fed = sent if is_complete else signature.complete(sent)
            wanted = list(output_filter) or None
            if wanted:
                signature.check_outputs(wanted)
            outputs = self._run(servable, "Predict", name, fed, wanted, timeout_ms)
            answer = Prediction(target.model, servable.version, name, outputs)
        if self._request_log is not None and self._request_log.should_log(target.model):
            self._request_log.predict(answer, sent, output_filter)
        return answer

    def classify(
        self,
        target: Target,
        sent: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
    ) -> Classification:
        """Classifies serialized examples.

        Args:
          sent: tf.train.Example messages, one a row of the answer.

        Raises:
          InvalidInput: no such signature, or none that classifies; no examples; outputs of
            another form than classes and scores have.
          ModelExecutionError: the model failed.
        """
        with self._manager.get_servable_handle(
            target.model, target.version, target.label
        ) as servable:
            name = target.effective_signature_name
            signature = examples.find(servable.model.signatures, name)
            wanted = classify.outputs_of(signature, self._check_method_names)
            fed = {examples.ALIAS: examples.encode(sent)}
            outputs = self._run(servable, "Classify", name, fed, wanted, timeout_ms)
            classes, scores = classify.read(outputs, len(sent))
            answer = Classification(target.model, servable.version, name, classes, scores)
        if self._request_log is not None and self._request_log.should_log(target.model):
            self._request_log.classify(answer, sent)
        return answer

    def regress(
        self,
        target: Target,
        sent: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
    ) -> Regression:
        """Regresses serialized examples; arguments and errors as of `classify`."""
        with self._manager.get_servable_handle(
            target.model, target.version, target.label
        ) as servable:
            name = target.effective_signature_name
            signature = examples.find(servable.model.signatures, name)
            wanted = regress.outputs_of(signature, self._check_method_names)
            fed = {examples.ALIAS: examples.encode(sent)}
            outputs = self._run(servable, "Regress", name, fed, wanted, timeout_ms)
            values = regress.read(outputs, len(sent))
            answer = Regression(target.model, servable.version, name, values)
        if self._request_log is not None and self._request_log.should_log(target.model):
            self._request_log.regress(answer, sent)
        return answer

    def multi_inference(
        self,
        tasks: Sequence[multi_inference.Task],
        sent: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
    ) -> list[Classification | Regression]:
        """Classifies and regresses serialized examples by several signatures of one model.

        The model, version and label of the first task hold for all of them. As in TensorFlow
        Serving it is not counted as a request.

        Args:
          tasks: what each is addressed to, with "tensorflow/serving/classify" or ".../regress".

        Raises:
          InvalidInput, UnsupportedModel: tasks that do not go together, or cannot be done.
          ModelExecutionError: the model failed.
        """
        target = multi_inference.target_of(tasks)
        with self._manager.get_servable_handle(
            target.model, target.version, target.label
        ) as servable:
            known = servable.model.signatures
            wanted = multi_inference.plan(tasks, known, self._check_method_names)
            fed = examples.encode(sent)
            self._metrics.examples(target.model, len(sent))
            started = time.perf_counter_ns()
            outputs = multi_inference.run(servable.runner, wanted, fed, timeout_ms)
            self._timed(target.model, "MultiInference", started)
            version = servable.version
            answers = multi_inference.read(target.model, version, wanted, outputs, len(sent))
        if self._request_log is not None and self._request_log.should_log(target.model):
            self._request_log.multi_inference(tasks, answers, sent)
        return answers

    def metadata(self, target: Target, fields: Sequence[str]) -> Metadata:
        """The signatures of a version, whole.

        Args:
          fields: what is asked for; there is nothing but "signature_def".

        Raises:
          InvalidInput: nothing is asked for, or something else.
        """
        if not fields:
            raise InvalidInput("GetModelMetadataRequest must specify at least one metadata_field")
        for field in fields:
            if field != SIGNATURE_DEF:
                raise InvalidInput(f"Metadata field {field} is not supported")
        with self._manager.get_servable_handle(
            target.model, target.version, target.label
        ) as servable:
            return Metadata(target.model, servable.version, servable.model.signature_defs)

    def status(self, model: str, version: int | None = None) -> list[VersionStatus]:
        """The status of a model's versions, or of one; newest first.

        Raises:
          ModelNotFound: no version of the model is known, or not that one.
        """
        return self._manager.status(model, version)

    def models(self) -> Mapping[str, list[VersionStatus]]:
        """The status of every version of every model, newest first; of some there is none."""
        return statuses(self._manager, self._manager.names())

    def listed(self) -> dict[str, ModelStatus]:
        """How each model is that is to be served, or is still there, by name."""
        configured = None if self._configured is None else frozenset(self._configured())
        return model_list.of(self._manager, configured)

    @property
    def is_available(self) -> bool:
        """Whether any version of any model answers requests."""
        return any(map(self._manager.is_available, self._manager.names()))

    def reload(self, config: Any) -> None:
        """Makes a configuration of models the one that is served; blocks until it is.

        Raises:
          UnsupportedModel: this server has a fixed configuration.
          TpuserveError: the configuration is wrong, or a model of it does not load.
        """
        if self._reload is None:
            raise UnsupportedModel("this server's models are fixed: it takes no configuration.")
        self._reload(config)

    def _run(
        self,
        servable: Servable,
        api: str,
        name: str,
        fed: Mapping[str, Array],
        wanted: Sequence[str] | None,
        timeout_ms: float | None,
    ) -> Mapping[str, Array]:
        started = time.perf_counter_ns()
        try:
            outputs = servable.runner.run(name, fed, wanted, timeout_ms=timeout_ms)
        except ModelExecutionError as error:
            # No fault of the client's, so it is for who runs the server to know.
            logger.error("%s: signature %s has failed: %s", servable, name, error)
            raise
        self._timed(servable.name, api, started)
        return outputs

    def _timed(self, model: str, api: str, started: int) -> None:
        self._metrics.runtime(model, api, (time.perf_counter_ns() - started) // 1000)
