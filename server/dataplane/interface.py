"""The interface of a data plane, which the frontends call; see `data_plane.DataPlane`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from server.admission.cancellation import Cancellation
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
    """The methods of a data plane, which runs in the frontends' process or in another process.

    Every inference method raises ModelNotFound if no such model or version is available,
    DeadlineExceeded if the time limit passes, Cancelled if the request is cancelled before its
    model has run, and ModelExecutionError if the model failed. The methods whose names begin with
    "start" return a Pending if the request waits for a batch or for another process; the model's
    version then stays loaded until `finish` of the Pending was called. The methods without "start"
    in their names wait for the result.
    """

    @property
    def is_available(self) -> bool:
        """Whether any version of any model can answer requests."""

    def run_limits(self, model: str) -> RunLimits | None:
        """Return, without waiting, the limits of a model's queue; None for an unknown model."""

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
        """Begin to run a model on inputs, in the calling thread unless requests are batched.

        Args:
          spec: the model, version and signature.
          read_inputs: takes the signature and returns the request's inputs, alias → array. It is
            called once the signature is known, because the signature determines how a request
            is parsed.
          output_filter: the aliases of the requested outputs; empty for all outputs.
          timeout_ms: the time limit in milliseconds; None for no limit.
          cancellation: tells whether the request is cancelled; None if it cannot be cancelled.
          timeline: records the times of the request; None to record nothing.

        Raises:
          SignatureNotFound: the model has no such signature.
          WrongMethodName: the server checks method names, and the signature's is not one that
            Predict may run.
          InvalidInputNames: the request's aliases do not match the signature.
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
        """Run a model on inputs; see `start_predict`."""
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
        """Begin to classify examples.

        Args:
          spec: the model, version and signature.
          serialized: serialised tf.train.Example messages; the answer has a row for each.
          timeout_ms: the time limit in milliseconds; None for no limit.
          cancellation: tells whether the request is cancelled; None if it cannot be cancelled.
          timeline: records the times of the request; None to record nothing.

        Raises:
          InvalidInput: the model has no such classification signature, the request has no
            examples, or an output has an unexpected type or shape.
        """

    def classify(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Classification:
        """Classify examples; see `start_classify`."""
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
        """Begin to regress examples; arguments and errors are those of `start_classify`."""

    def regress(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Regression:
        """Regress examples; see `start_regress`."""
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

        The model, version and label of the first task apply to all tasks. As in TensorFlow Serving,
        the request is not counted in request_count.

        Args:
          tasks: the model specification of each task, with "tensorflow/serving/classify" or
            "tensorflow/serving/regress".
          serialized: serialised tf.train.Example messages.
          timeout_ms: the time limit in milliseconds; None for no limit.
          cancellation: tells whether the request is cancelled; None if it cannot be cancelled.
          timeline: records the times of the request; None to record nothing.

        Raises:
          InvalidInput: the tasks name several models or an unsuitable signature.
          UnsupportedModel: a task's method is neither Classify nor Regress.
        """

    def multi_inference(
        self,
        tasks: Sequence[Task],
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> list[Classification | Regression]:
        """Classify and regress examples with several signatures; see `start_multi_inference`."""
        return pending.wait(
            self.start_multi_inference(
                tasks, serialized, timeout_ms=timeout_ms, cancellation=cancellation
            )
        )

    def metadata(self, spec: ModelSpec, fields: Sequence[str]) -> Metadata:
        """Return the signatures of a version."""

    def sample_request(self, spec: ModelSpec) -> SampleRequest:
        """Return a valid Predict request for a signature.

        Raises:
          InvalidInput: no inputs can be generated, for example for a sparse tensor.
        """

    def statistics(self, spec: ModelSpec) -> Statistics:
        """Return the statistics of a version."""

    def status(self, model: str, version: int | None = None) -> list[VersionStatus]:
        """Return the status of a model's versions, or of one version; newest first."""

    def models(self) -> Mapping[str, list[VersionStatus]]:
        """Return the status of all versions of all models: model name → statuses."""

    def list_models(self) -> dict[str, ModelStatus]:
        """List every model that is configured or still has versions: model name → status."""

    def reload(self, config: Any) -> None:
        """Replace the model configuration; blocks until its models are available or have failed."""

    def load_model(self, model: str) -> None:
        """Load a model of the configuration; see `DataPlane.load_model`."""

    def unload_model(self, model: str) -> None:
        """Unload all versions of a model; see `DataPlane.unload_model`."""

    def base_paths(self) -> Mapping[str, str]:
        """Return the name of each configured model → its base path."""

    def add_model(self, model: str, base_path: str) -> None:
        """Add a model to the configuration; see `DataPlane.add_model`."""

    def remove_model(self, model: str) -> None:
        """Remove a model from the configuration; see `DataPlane.remove_model`."""

    def start_profiler(self) -> str:
        """Start TensorFlow's profiler server, unless it runs, and return its address."""

    def record_profiler_event(self, seconds: float, requests_in_flight: int) -> None:
        """Wait for some seconds; a profile that is being recorded shows the wait as an event."""
