"""The data plane of a frontend process, which forwards requests to the engine process."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from server.admission.cancellation import Cancellation
from server.admission.nonblocking import WouldBlock, blocking_allowed
from server.dataplane import (
    Classification,
    Metadata,
    ModelSpec,
    ModelStatus,
    Prediction,
    Regression,
    SampleRequest,
    Statistics,
)
from server.dataplane.inference_statistics import StageTimes
from server.dataplane.interface import DataPlaneInterface, ReadInputs
from server.dataplane.multi_inference import Task
from server.metrics.timeline import Timeline
from server.remote import protocol
from server.remote.call import RemoteCall
from server.remote.client import EngineClient
from server.remote.event_loop_client import EventLoopClient
from server.remote.stage_reporter import StageReporter
from server.scheduling.run_limits import RunLimits
from server.servables.pending import Pending
from server.servables.servable import Array, VersionStatus
from tpuserve.errors import TpuserveError, Unavailable
from tpuserve.saved_model.signature import Signature

_MAX_SIGNATURES = 1024
# The limits of each model's requests in a frontend process. They are high, because requests only
# wait there for the engine process, which applies the configured limits.
_LIMITS = RunLimits(max_concurrent_runs=128, only_waits=True)


class RemoteDataPlane(DataPlaneInterface):
    """A `DataPlaneInterface` that answers requests with the data plane of the engine process.

    The frontend process decodes the inputs of requests, which requires the model's signature. It
    asks the engine process for the signature once, and keeps it in a cache. If the model has
    another signature when the inputs arrive in the engine process, the engine process refuses them,
    and the frontend process decodes them again with the new signature.
    """

    def __init__(
        self,
        client: EngineClient,
        loop_client: EventLoopClient | None = None,
    ) -> None:
        """Create a data plane.

        Args:
          client: sends the calls that are made in threads other than the event loop's.
          loop_client: sends the calls that are made in the event loop; None to send all calls with
            `client`.
        """
        self._client = client
        self._loop_client = loop_client
        # A cache: model specification → (the number by which the engine process knows the
        # signature, the signature). It has the most recently requested signatures.
        self._signatures: OrderedDict[ModelSpec, tuple[int, Signature]] = OrderedDict()
        # The names of the models that have answered a request, and so are known to exist.
        self._models: set[str] = set()
        self._lock = threading.Lock()
        self._stages = StageReporter(self.record_stages)
        client.on_state = self._forget_signatures

    def run_limits(self, model: str) -> RunLimits | None:
        """Return the limits of a model's running and waiting requests in this process.

        The result is None before the model has answered its first request, which shows that the
        model exists.
        """
        return _LIMITS if model in self._models else None

    @property
    def is_available(self) -> bool:
        """Whether at least one version of any model can answer requests."""
        return self._client.is_available

    def start_predict(
        self,
        spec: ModelSpec,
        read_inputs: ReadInputs,
        output_filter: Sequence[str] = (),
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
        timeline: Timeline | None = None,
    ) -> Pending[Prediction]:
        """Send a Predict request to the engine process.

        The arguments and errors are those of `DataPlaneInterface.start_predict`.

        The first request for a signature waits until the engine process has sent this signature.
        """
        timeline = Timeline() if timeline is None else timeline
        number, signature, inputs = self._read_inputs(spec, read_inputs, cancellation)
        timeline.end_decoding()
        options = tuple(output_filter), timeout_ms
        request = _PredictRequest(
            spec, read_inputs, signature, inputs, options, cancellation, timeline
        )
        return self._send(request, number)

    def _send(self, request: "_PredictRequest", number: int) -> Pending[Prediction]:
        """Send a Predict request, whose inputs are decoded, to the engine process.

        Args:
          request: the request.
          number: the number by which the engine process knows the signature with which the inputs
            were decoded.
        """
        cancellation = request.cancellation
        if cancellation is not None:
            # Raise Cancelled before the arrays are packed into shared memory. An error after the
            # packing would leak this memory: the engine process frees it when it receives the call.
            cancellation.raise_if_cancelled()
        client = self._choose_client()
        channel = client.channel
        values = (number, *request.options, channel.pack(request.inputs))
        retry = partial(self._send_again, request)
        call = client.start(channel, protocol.PREDICT, values, cancellation, retry)
        return Pending(call, partial(self._finish_prediction, call, request))

    def _finish_prediction(self, call: RemoteCall, request: "_PredictRequest") -> Prediction:
        """Wait for the answer to a Predict request, and return it."""
        answer = call.finish()
        if isinstance(answer, Prediction):
            return answer
        _, _, _, version, outputs, run = answer
        timeline = request.timeline
        timeline.unpack_run(run)
        timeline.on_end = self._stages.add
        outputs = call.channel.unpack(outputs)
        return Prediction(request.spec.model, version, timeline.signature, outputs)

    def _send_again(self, request: "_PredictRequest") -> Prediction:
        """Send a request again, because its signature was outdated, and wait for the answer.

        The method asks the engine process for the new signature. It decodes the inputs again if the
        signature declares other inputs.
        """
        with self._lock:
            self._signatures.pop(request.spec, None)
        number, signature = self._ask_for_signature(request.spec, request.cancellation)
        if signature.inputs != request.signature.inputs:
            request.inputs = _read_again(request.read_inputs, signature)
            request.signature = signature
        return self._send(request, number).finish()

    def start_classify(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
        timeline: Timeline | None = None,
    ) -> Pending[Classification]:
        """Send a Classify request to the engine process.

        The arguments and errors are those of `DataPlaneInterface.start_classify`.
        """
        return self._infer("start_classify", spec, serialized, timeout_ms, cancellation, timeline)

    def start_regress(
        self,
        spec: ModelSpec,
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
        timeline: Timeline | None = None,
    ) -> Pending[Regression]:
        """Send a Regress request to the engine process.

        The arguments and errors are those of `DataPlaneInterface.start_regress`.
        """
        return self._infer("start_regress", spec, serialized, timeout_ms, cancellation, timeline)

    def start_multi_inference(
        self,
        tasks: Sequence[Task],
        serialized: Sequence[bytes],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
        timeline: Timeline | None = None,
    ) -> Pending[list[Classification | Regression]]:
        """Send a MultiInference request to the engine process.

        The arguments and errors are those of `DataPlaneInterface.start_multi_inference`.
        """
        return self._infer(
            "start_multi_inference", tasks, serialized, timeout_ms, cancellation, timeline
        )

    def metadata(self, spec: ModelSpec, fields: Sequence[str]) -> Metadata:
        """Return the signatures of a model version, from the engine process.

        The arguments and errors are those of `DataPlane.metadata`.
        """
        return cast(Metadata, self._call("metadata", spec, fields))

    def sample_request(self, spec: ModelSpec) -> SampleRequest:
        """Return a valid Predict request for a signature, from the engine process.

        The errors are those of `DataPlaneInterface.sample_request`.
        """
        return cast(SampleRequest, self._call("sample_request", spec))

    def statistics(self, spec: ModelSpec) -> Statistics:
        """Return the statistics of a model version's runs and batches, from the engine process.

        The times of decoding and encoding may lack requests that other frontend processes have
        answered in the last half second.
        """
        _check_may_wait()
        self._stages.flush()
        return cast(Statistics, self._call("statistics", spec))

    def record_stages(self, stages: Sequence[StageTimes]) -> None:
        """Add times of decoding and encoding to the statistics in the engine process.

        The argument is that of `DataPlaneInterface.record_stages`.
        """
        self._call("record_stages", stages)

    def status(self, model: str, version: int | None = None) -> list[VersionStatus]:
        """Return the status of one version; if `version` is None, of all versions, newest first."""
        return cast(list[VersionStatus], self._call("status", model, version))

    def models(self) -> Mapping[str, list[VersionStatus]]:
        """Return the status of all versions of all models: model name → statuses, newest first."""
        return cast(Mapping[str, list[VersionStatus]], self._call("models"))

    def list_models(self) -> dict[str, ModelStatus]:
        """Return model name → status, for each model that is configured or still has versions."""
        return cast(dict[str, ModelStatus], self._call("list_models"))

    def reload(self, config: Any) -> None:
        """Replace the model configuration, and wait until its models are available or have failed.

        The errors are those of `DataPlane.reload`.
        """
        self._call("reload", config)

    def load_model(self, model: str) -> None:
        """Load a model of the configuration, and wait until it is available or has failed.

        The errors are those of `DataPlane.load_model`.
        """
        self._call("load_model", model)

    def unload_model(self, model: str) -> None:
        """Unload all versions of a model.

        The errors are those of `DataPlane.unload_model`.
        """
        self._call("unload_model", model)

    def base_paths(self) -> Mapping[str, str]:
        """Return model name → base path, for all configured models."""
        return cast(Mapping[str, str], self._call("base_paths"))

    def add_model(self, model: str, base_path: str) -> None:
        """Add a model to the configuration, and wait until it is available or has failed.

        The errors are those of `DataPlane.add_model`.
        """
        self._call("add_model", model, base_path)

    def remove_model(self, model: str) -> None:
        """Remove a model from the configuration, and unload its versions.

        The errors are those of `DataPlane.remove_model`.
        """
        self._call("remove_model", model)

    def start_profiler(self) -> str:
        """Start TensorFlow's profiler server in the engine process, and return its "host:port"."""
        return str(self._call("start_profiler"))

    def record_profiler_event(self, seconds: float, requests_in_flight: int) -> None:
        """Wait for some seconds, and record the wait as an event of the engine process's profiler.

        The event shows `requests_in_flight`, the number of requests in flight.
        """
        self._call("record_profiler_event", seconds, requests_in_flight)

    def _infer(
        self,
        method: str,
        target: ModelSpec | Sequence[Task],
        serialized: Sequence[bytes],
        timeout_ms: float | None,
        cancellation: Cancellation | None,
        timeline: Timeline | None,
    ) -> Pending[Any]:
        """Send an inference request other than Predict to the engine process.

        Args:
          method: the name of the method of the data plane to call, such as "start_classify".
          target: the model, version and signature; for MultiInference, the tasks.
          serialized: serialised tf.train.Example messages.
          timeout_ms: the time limit in milliseconds; None for no limit.
          cancellation: cancels the request; None if the request cannot be cancelled.
          timeline: records the times of the request; None to record nothing.

        Returns:
          A Pending (a future) of the method's result.
        """
        timeline = Timeline() if timeline is None else timeline
        timeline.end_decoding()
        if cancellation is not None:
            cancellation.raise_if_cancelled()
        arguments = protocol.pack(((target, serialized), {"timeout_ms": timeout_ms}))
        client = self._choose_client()
        call = client.start(client.channel, protocol.INFER, (method, arguments), cancellation)

        def finish() -> Any:
            _, _, _, packed, run = call.finish()
            timeline.unpack_run(run)
            result = protocol.unpack(packed)
            if isinstance(target, ModelSpec):
                timeline.on_end = self._stages.add
                self._models.add(target.model)
            else:  # Report no times of MultiInference, which the statistics do not count.
                self._models.add(target[0][0].model)
            return result

        return Pending(call, finish)

    def _choose_client(self) -> EngineClient:
        """Return the client with which the calling thread must send its calls.

        The thread of the event loop has a separate client.
        """
        loop = asyncio._get_running_loop()
        if loop is None or self._loop_client is None:
            return self._client
        self._loop_client.attach(loop)
        return self._loop_client

    def _call(self, method: str, *arguments: Any) -> Any:
        channel = self._client.channel
        _check_may_wait()
        packed = protocol.pack((arguments, {}))
        answer = self._client.start(channel, protocol.METHOD, (method, packed)).finish()
        return protocol.unpack(answer[3])

    def _read_inputs(
        self, spec: ModelSpec, read_inputs: ReadInputs, cancellation: Cancellation | None
    ) -> tuple[int, Signature, Mapping[str, Array]]:
        """Decode the inputs of a request with the signature of its model.

        Returns:
          The number by which the engine process knows the signature; the signature; and the inputs,
          alias → array.
        """
        known = self._signatures.get(spec)
        while True:
            number, signature = known or self._ask_for_signature(spec, cancellation)
            try:
                return number, signature, read_inputs(signature)
            except Exception:
                if known is None:
                    raise
                # The inputs may not fit because the cached signature is that of an earlier version
                # of the model. So ask for the signature again, and decode the inputs again.
                known = None

    def _forget_signatures(self) -> None:
        """Delete all cached signatures, because the state of a version has changed."""
        with self._lock:
            self._signatures.clear()

    def _ask_for_signature(
        self, spec: ModelSpec, cancellation: Cancellation | None
    ) -> tuple[int, Signature]:
        channel = self._client.channel
        _check_may_wait()
        call = self._client.start(channel, protocol.SIGNATURE, (tuple(spec),), cancellation)
        answer = call.finish()
        numbered = answer[3], cast(Signature, protocol.unpack(answer[4]))
        self._models.add(spec.model)
        with self._lock:
            self._signatures[spec] = numbered
            self._signatures.move_to_end(spec)
            if len(self._signatures) > _MAX_SIGNATURES:
                self._signatures.popitem(last=False)
        return numbered


@dataclass(slots=True, eq=False)
class _PredictRequest:
    """A Predict request whose inputs are decoded.

    Attributes:
      spec: the model, version and signature name.
      read_inputs: takes a signature, and decodes the inputs of the request with it.
      signature: the signature with which the inputs were decoded.
      inputs: the decoded inputs: alias → array.
      options: the aliases of the requested outputs (empty for all), and the time limit in
        milliseconds (None for no limit).
      cancellation: cancels the request; None if the request cannot be cancelled.
      timeline: records the times of the request.
    """

    spec: ModelSpec
    read_inputs: ReadInputs
    signature: Signature
    inputs: Mapping[str, Array]
    options: tuple[tuple[str, ...], float | None]
    cancellation: Cancellation | None
    timeline: Timeline


def _read_again(read_inputs: ReadInputs, signature: Signature) -> Mapping[str, Array]:
    """Decode the inputs of a request a second time, with the signature of a new version.

    Raises:
      Unavailable: the request cannot be decoded again, because its bytes were freed.
    """
    try:
        return read_inputs(signature)
    except TpuserveError:
        raise
    except Exception as error:
        raise Unavailable(
            "the model was replaced while the request was read. Send the request again."
        ) from error


def _check_may_wait() -> None:
    """Raise WouldBlock if the calling thread must not wait, for example the event loop's thread."""
    if not blocking_allowed():
        raise WouldBlock
