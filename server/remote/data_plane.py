"""The data plane of a frontend process: forwards requests to the engine process."""

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
from server.dataplane.interface import DataPlaneInterface, ReadInputs
from server.dataplane.multi_inference import Task
from server.metrics.timeline import Timeline
from server.remote import protocol
from server.remote.call import Call
from server.remote.client import EngineClient
from server.remote.event_loop_client import EventLoopClient
from server.scheduling.run_limits import RunLimits
from server.servables.pending import Pending
from server.servables.servable import Array, VersionStatus
from tpuserve.errors import TpuserveError, Unavailable
from tpuserve.saved_model.signature import Signature

_MAX_SIGNATURES = 1024
# The limits of each model in a frontend process. They are wide, because the requests only wait
# there for the engine process, which applies the configured limits.
_LIMITS = RunLimits(max_concurrent_runs=128, only_waits=True)


class RemoteDataPlane(DataPlaneInterface):
    """Answers requests with the data plane of the engine process; see `DataPlaneInterface`.

    This process decodes inputs with the model's signature, which it requests once from the engine
    process and keeps in a cache. If the model has another signature when the inputs arrive, the
    engine process refuses the inputs, and this process decodes them again with the new signature.
    """

    def __init__(
        self,
        client: EngineClient,
        loop_client: EventLoopClient | None = None,
    ) -> None:
        """Create a data plane.

        Args:
          client: sends the calls of threads.
          loop_client: sends the calls of the event loop; None to send all calls with `client`.
        """
        self._client = client
        self._loop_client = loop_client
        # Model specification → the number of the signature in the engine process, and the
        # signature. Holds the most recently used signatures.
        self._signatures: OrderedDict[ModelSpec, tuple[int, Signature]] = OrderedDict()
        # The models that have answered a request.
        self._models: set[str] = set()
        self._lock = threading.Lock()
        client.on_state = self._forget_signatures

    def run_limits(self, model: str) -> RunLimits | None:
        """Return a model's limits in this process; None until the model has answered a request."""
        return _LIMITS if model in self._models else None

    @property
    def is_available(self) -> bool:
        """Whether any version of any model can answer requests."""
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
        """Send a request to the engine process; see `DataPlaneInterface.start_predict`.

        The first request for a signature waits until the engine process has sent the signature.
        """
        timeline = Timeline() if timeline is None else timeline
        number, signature, inputs = self._read_inputs(spec, read_inputs, cancellation)
        timeline.end_decoding()
        options = tuple(output_filter), timeout_ms
        request = _Request(spec, read_inputs, signature, inputs, options, cancellation, timeline)
        return self._send(request, number)

    def _send(self, request: "_Request", number: int) -> Pending[Prediction]:
        """Send a request to the engine process.

        Args:
          request: the request.
          number: the number that the engine process has given to the signature with which the
            inputs were decoded.
        """
        cancellation = request.cancellation
        if cancellation is not None:
            # Raise now and not after the arrays are packed, because only an answer frees the shared
            # memory of packed arrays.
            cancellation.raise_if_cancelled()
        client = self._choose_client()
        channel = client.channel
        values = (number, *request.options, channel.pack(request.inputs))
        retry = partial(self._send_again, request)
        call = client.start(channel, protocol.PREDICT, values, cancellation, retry)
        return Pending(call, partial(_finish_prediction, call, request))

    def _send_again(self, request: "_Request") -> Prediction:
        """Decode the inputs again, because the signature was outdated, and return the answer."""
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
        """Send a request to the engine process; see `DataPlaneInterface.start_classify`."""
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
        """Send a request to the engine process; see `DataPlaneInterface.start_regress`."""
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
        """Send a request to the engine process; see `DataPlaneInterface.start_multi_inference`."""
        return self._infer(
            "start_multi_inference", tasks, serialized, timeout_ms, cancellation, timeline
        )

    def metadata(self, spec: ModelSpec, fields: Sequence[str]) -> Metadata:
        """Return the signatures of a version; see `DataPlane.metadata`."""
        return cast(Metadata, self._call("metadata", spec, fields))

    def sample_request(self, spec: ModelSpec) -> SampleRequest:
        """Return a valid Predict request for a signature; see `DataPlaneInterface`."""
        return cast(SampleRequest, self._call("sample_request", spec))

    def statistics(self, spec: ModelSpec) -> Statistics:
        """Return the statistics of a version; see `DataPlane.statistics`."""
        return cast(Statistics, self._call("statistics", spec))

    def status(self, model: str, version: int | None = None) -> list[VersionStatus]:
        """Return the status of a model's versions; see `DataPlane.status`."""
        return cast(list[VersionStatus], self._call("status", model, version))

    def models(self) -> Mapping[str, list[VersionStatus]]:
        """Return the status of all versions of all models: model name → statuses."""
        return cast(Mapping[str, list[VersionStatus]], self._call("models"))

    def list_models(self) -> dict[str, ModelStatus]:
        """List every model that is configured or still has versions: model name → status."""
        return cast(dict[str, ModelStatus], self._call("list_models"))

    def reload(self, config: Any) -> None:
        """Replace the model configuration; see `DataPlane.reload`."""
        self._call("reload", config)

    def load_model(self, model: str) -> None:
        """Load a model of the configuration; see `DataPlane.load_model`."""
        self._call("load_model", model)

    def unload_model(self, model: str) -> None:
        """Unload all versions of a model; see `DataPlane.unload_model`."""
        self._call("unload_model", model)

    def base_paths(self) -> Mapping[str, str]:
        """Return the name of each configured model → its base path."""
        return cast(Mapping[str, str], self._call("base_paths"))

    def add_model(self, model: str, base_path: str) -> None:
        """Add a model to the configuration; see `DataPlane.add_model`."""
        self._call("add_model", model, base_path)

    def remove_model(self, model: str) -> None:
        """Remove a model from the configuration; see `DataPlane.remove_model`."""
        self._call("remove_model", model)

    def start_profiler(self) -> str:
        """Start TensorFlow's profiler server in the engine process, and return its address."""
        return str(self._call("start_profiler"))

    def record_profiler_event(self, seconds: float, requests_in_flight: int) -> None:
        """Record an event in the engine process; see `DataPlane.record_profiler_event`."""
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
        """Send a request for a method of the data plane that runs a model."""
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
            self._models.add((target if isinstance(target, ModelSpec) else target[0][0]).model)
            return result

        return Pending(call, finish)

    def _choose_client(self) -> EngineClient:
        """Return the client for the calling thread; the event loop has a client of its own."""
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
        """Return a signature's number, the signature, and the inputs decoded with the signature."""
        known = self._signatures.get(spec)
        while True:
            number, signature = known or self._ask_for_signature(spec, cancellation)
            try:
                return number, signature, read_inputs(signature)
            except Exception:
                if known is None:
                    raise
                # Ask for the signature anew: the cached signature may be that of an earlier
                # version.
                known = None

    def _forget_signatures(self) -> None:
        """Drop all cached signatures, because the state of a version has changed."""
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
class _Request:
    """A Predict request.

    Attributes:
      spec: the model, version and signature name.
      read_inputs: see `DataPlaneInterface.start_predict`.
      signature: the signature with which the inputs were decoded.
      inputs: alias → array.
      options: the requested outputs, and the time limit in milliseconds.
      cancellation: cancels the request.
      timeline: the times of the request.
    """

    spec: ModelSpec
    read_inputs: ReadInputs
    signature: Signature
    inputs: Mapping[str, Array]
    options: tuple[tuple[str, ...], float | None]
    cancellation: Cancellation | None
    timeline: Timeline


def _finish_prediction(call: Call, request: _Request) -> Prediction:
    answer = call.finish()
    if isinstance(answer, Prediction):
        return answer
    _, _, _, version, outputs, run = answer
    request.timeline.unpack_run(run)
    spec = request.spec
    name = spec.effective_signature_name
    return Prediction(spec.model, version, name, call.channel.unpack(outputs))


def _read_again(read_inputs: ReadInputs, signature: Signature) -> Mapping[str, Array]:
    """Decode the inputs of a request a second time, with the signature of a new version.

    Raises:
      Unavailable: the request cannot be decoded again, because its bytes are no longer in memory.
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
    """Raise WouldBlock if the calling thread must not wait, for example the event loop's."""
    if not blocking_allowed():
        raise WouldBlock
