"""The interface of a data plane, which the frontends (the REST and gRPC servers) call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from server.admission.cancellation import Cancellation
from server.dataplane.inference_statistics import StageTimes
from server.dataplane.model_spec import ModelSpec
from server.dataplane.multi_inference import Task
from server.dataplane.results import (
    Classification,
    Metadata,
    ModelStatus,
    Prediction,
    Regression,
    SampleRequest,
    Statistics,
)
from server.metrics.timeline import Timeline
from server.scheduling.run_limits import RunLimits
from server.servables import pending
from server.servables.pending import Pending
from server.servables.servable import Array, VersionStatus
from tpuserve.saved_model.signature import Signature

ReadInputs: TypeAlias = Callable[[Signature], Mapping[str, Array]]


class DataPlaneInterface(Protocol):
    """The methods of a data plane, which answers requests independently of their protocol.

    The data plane runs in the process of the frontends or in another process.

    Every inference method raises ModelNotFound if the requested model version is not available,
    LabelNotFound if the model has no such version label, DeadlineExceeded if the time limit passes,
    Cancelled if the request is cancelled before its model has run, and ModelExecutionError if the
    model fails. The inference methods whose names begin with "start" return a Pending (a future) if
    the request waits for a batch or for another process. The caller must then call `finish` of the
    Pending. The version stays loaded until this call. The other inference methods wait for the
    result.
    """

    @property
    def is_available(self) -> bool:
        """Whether at least one version of any model can answer requests."""

    def run_limits(self, model: str) -> RunLimits | None:
        """Return the limits of a model's running and waiting requests.

        The result is None for an unknown model. The method does not wait for another process.
        """

    def start_predict(
        self,
        spec: ModelSpec,
        read_inputs: ReadInputs,
        output_filter: Sequence[str] = (),
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
        timeline: Timeline | None = None,
    ) -> Prediction | Pending[Prediction]:
        """Begin to run a signature of a model on inputs.

        The model runs in the calling thread, unless requests are batched.

        Args:
          spec: the model, version and signature.
          read_inputs: takes the signature, and returns the inputs of the request, alias → array.
            `read_inputs` parses the request, because the parser needs the signature.
          output_filter: the aliases of the requested outputs; empty for all outputs.
          timeout_ms: the time limit in milliseconds; None for no limit.
          cancellation: cancels the request; None if the request cannot be cancelled.
          timeline: records the times of the request; None to record nothing.

        Raises:
          SignatureNotFound: the model has no such signature.
          WrongMethodName: the server checks the method_name of signatures, and Predict may not run
            a signature with this method_name.
          InvalidInputNames: the names of the request's inputs do not match the signature.
          InvalidTensor: an input's type or shape does not match the signature or the model.
        """

    def predict(
        self,
        spec: ModelSpec,
        read_inputs: ReadInputs,
        output_filter: Sequence[str] = (),
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Prediction:
        """Run a signature of a model on inputs, and wait for the outputs.

        The arguments and errors are those of `start_predict`.
        """
        started = self.start_predict(
            spec, read_inputs, output_filter, timeout_ms=timeout_ms, cancellation=cancellation
        )
        return pending.wait(started)

    def start_classify(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
        timeline: Timeline | None = None,
    ) -> Classification | Pending[Classification]:
        """Begin to run a classification signature on examples.

        Args:
          spec: the model, version and signature.
          serialized: serialised tf.train.Example messages; the answer has one row for each example.
          timeout_ms: the time limit in milliseconds; None for no limit.
          cancellation: cancels the request; None if the request cannot be cancelled.
          timeline: records the times of the request; None to record nothing.

        Raises:
          InvalidInput: the model has no signature of this name, the signature is not for
            classification, the request has no examples, or an output has an unexpected type or
            shape.
        """

    def classify(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Classification:
        """Run a classification signature on examples, and wait for the answer.

        The arguments and errors are those of `start_classify`.
        """
        return pending.wait(
            self.start_classify(spec, serialized, timeout_ms=timeout_ms, cancellation=cancellation)
        )

    def start_regress(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
        timeline: Timeline | None = None,
    ) -> Regression | Pending[Regression]:
        """Begin to run a regression signature on examples.

        The arguments and errors are those of `start_classify`, for regression signatures.
        """

    def regress(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Regression:
        """Run a regression signature on examples, and wait for the answer.

        The arguments and errors are those of `start_classify`.
        """
        return pending.wait(
            self.start_regress(spec, serialized, timeout_ms=timeout_ms, cancellation=cancellation)
        )

    def start_multi_inference(
        self,
        tasks: Sequence[Task],
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
        timeline: Timeline | None = None,
    ) -> list[Classification | Regression] | Pending[list[Classification | Regression]]:
        """Begin to classify and regress examples with several signatures of one model.

        The model, version and version label of the first task apply to all tasks. As in TensorFlow
        Serving, the metric request_count does not count the request.

        Args:
          tasks: pairs (model specification, method name). The method name is
            "tensorflow/serving/classify" or "tensorflow/serving/regress".
          serialized: serialised tf.train.Example messages.
          timeout_ms: the time limit in milliseconds; None for no limit.
          cancellation: cancels the request; None if the request cannot be cancelled.
          timeline: records the times of the request; None to record nothing.

        Raises:
          InvalidInput: the tasks name different models, two tasks name the same signature, a task
            names a signature that is unknown or that the task's method cannot run, the request has
            no examples, or an output has an unexpected type or shape.
          UnsupportedModel: the method of a task is neither Classify nor Regress.
        """

    def multi_inference(
        self,
        tasks: Sequence[Task],
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> list[Classification | Regression]:
        """Classify and regress examples with several signatures, and wait for the answers.

        The arguments and errors are those of `start_multi_inference`.
        """
        return pending.wait(
            self.start_multi_inference(
                tasks, serialized, timeout_ms=timeout_ms, cancellation=cancellation
            )
        )

    def metadata(self, spec: ModelSpec, fields: Sequence[str]) -> Metadata:
        """Return the signatures of a model version.

        `fields` are the names of the requested metadata fields, of which only "signature_def" is
        valid.
        """

    def sample_request(self, spec: ModelSpec) -> SampleRequest:
        """Return a valid Predict request for a signature, as an example for users.

        Raises:
          SignatureNotFound: the model has no such signature.
          InvalidInput: no inputs can be generated, for example for a sparse tensor.
        """

    def statistics(self, spec: ModelSpec) -> Statistics:
        """Return the statistics of the runs and batches of a model version since it was loaded."""

    def record_stages(self, stages: Sequence[StageTimes]) -> None:
        """Add times of decoding and encoding to the statistics of model versions.

        A frontend process calls this method, because the inputs of its requests are decoded, and
        the responses encoded, in the frontend process. The data plane itself records the times of
        all other requests.
        """

    def status(self, model: str, version: int | None = None) -> list[VersionStatus]:
        """Return the status of one version of a model.

        If `version` is None, return the status of all its versions, newest first.
        """

    def models(self) -> Mapping[str, list[VersionStatus]]:
        """Return the status of all versions of all models: model name → statuses, newest first."""

    def list_models(self) -> dict[str, ModelStatus]:
        """Return model name → status, for each model that is configured or still has versions."""

    def reload(self, config: Any) -> None:
        """Replace the model configuration, and wait until its models are available or have failed.

        `config` is the new `server.config.model_config.ModelServerConfig`.
        """

    def load_model(self, model: str) -> None:
        """Load a model of the configuration, and wait until it is available or has failed."""

    def unload_model(self, model: str) -> None:
        """Unload all versions of a model; its requests in flight are still answered."""

    def base_paths(self) -> Mapping[str, str]:
        """Return model name → base path, for all configured models."""

    def add_model(self, model: str, base_path: str) -> None:
        """Add a model to the configuration, and wait until it is available or has failed."""

    def remove_model(self, model: str) -> None:
        """Remove a model from the configuration, and unload its versions."""

    def start_profiler(self) -> str:
        """Start TensorFlow's profiler server if it is not running; return its "host:port"."""

    def record_profiler_event(self, seconds: float, requests_in_flight: int) -> None:
        """Wait for some seconds, and record the wait as an event of TensorFlow's profiler.

        Without such events the profile of an idle server would be empty, and TensorFlow's client
        refuses an empty profile. The event shows `requests_in_flight`.
        """
