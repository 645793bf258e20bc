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
    Statistics,
)
from server.scheduling.run_limits import RunLimits
from server.servables.pending import Pending
from server.servables.servable import Array, VersionStatus
from tpuserve.saved_model.signature import Signature

ReadInputs: TypeAlias = Callable[[Signature], Mapping[str, Array]]


class DataPlaneInterface(Protocol):
    """What the frontends need of a data plane: that of their own process, or of another process.

    The methods have the arguments, results and errors of those of `DataPlane`.
    """

    @property
    def is_available(self) -> bool:
        """Whether any version of any model can answer requests."""

    def predict(
        self,
        spec: ModelSpec,
        read_inputs: ReadInputs,
        output_filter: Sequence[str] = (),
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Prediction:
        """Run a model on inputs."""

    def start_predict(
        self,
        spec: ModelSpec,
        read_inputs: ReadInputs,
        output_filter: Sequence[str] = (),
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Prediction | Pending[Prediction]:
        """Begin to run a model on inputs."""

    def classify(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Classification:
        """Classify examples."""

    def regress(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Regression:
        """Regress examples."""

    def start_classify(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Classification | Pending[Classification]:
        """Begin to classify examples."""

    def start_regress(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> Regression | Pending[Regression]:
        """Begin to regress examples."""

    def multi_inference(
        self,
        tasks: Sequence[Task],
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> list[Classification | Regression]:
        """Classify and regress examples with several signatures of one model."""

    def start_multi_inference(
        self,
        tasks: Sequence[Task],
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> list[Classification | Regression] | Pending[list[Classification | Regression]]:
        """Begin to classify and regress examples with several signatures of one model."""

    @property
    def run_limits(self) -> Callable[[str], RunLimits | None]:
        """A function that returns the limits of a model's queue at once, without waiting.

        The function returns None if no model of the name is configured.
        """

    def metadata(self, spec: ModelSpec, fields: Sequence[str]) -> Metadata:
        """Return the signatures of a version."""

    def statistics(self, spec: ModelSpec) -> Statistics:
        """Return what batching did for a version."""

    def status(self, model: str, version: int | None = None) -> list[VersionStatus]:
        """Return the status of a model's versions, or of one version; newest first."""

    def models(self) -> Mapping[str, list[VersionStatus]]:
        """Return the status of all versions of all models: model name → statuses."""

    def list_models(self) -> dict[str, ModelStatus]:
        """List every model that is configured or still has versions: model name → status."""

    def reload(self, config: Any) -> None:
        """Replace the model configuration; blocks until its models are available or have failed."""

    def start_profiler(self) -> str:
        """Start TensorFlow's profiler server, unless it runs, and return its address."""

    def record_profiler_event(self, seconds: float, requests_in_flight: int) -> None:
        """Wait for some seconds, which a profile that is taken meanwhile shows as an event."""
