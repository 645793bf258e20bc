"""Receives the calls of the frontend processes in the engine process, and answers them."""

import contextlib
import random
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from server.admission import cancellation as cancellations
from server.admission.cancellation import Cancellation
from server.admission.latency_tracker import LatencyTracker
from server.admission.time_limit import remaining_ms
from server.dataplane import DataPlaneInterface, ModelSpec, Prediction
from server.metrics import Metrics
from server.metrics.timeline import Timeline
from server.process.thread_pool import ThreadPool
from server.remote import protocol
from server.remote.channel import Channel, Message, PackedArray
from server.remote.channel_loop import ChannelLoop
from server.scheduling.request_queues import RequestQueues
from server.scheduling.ticket import InlineTicket, RunnableTicket, RunPool, Ticket
from server.servables import pending
from server.servables.pending import Pending
from server.servables.servable import Array
from tpuserve.errors import Cancelled, QueueFull, TpuserveError
from tpuserve.saved_model.signature import Signature

Answer: TypeAlias = Callable[..., None]

# The numbers of threads for calls that do not run a model: _ADMIN_THREADS for quick calls, such as
# status, and _SLOW_THREADS for calls that may take long, such as a reload.
_ADMIN_THREADS, _SLOW_THREADS = 8, 8
_SLOW_METHODS = frozenset(
    {
        "sample_request",
        "reload",
        "load_model",
        "unload_model",
        "add_model",
        "remove_model",
        "start_profiler",
        "record_profiler_event",
    }
)
# The largest number of threads for inferences. It is higher than the number of inferences that the
# queues let run at the same time, so that it is never the limit.
_MAX_THREADS = 4096
# The largest number of (model, signature) pairs that have a number, by which calls name them. When
# this limit is reached, all numbers become invalid, and frontend processes ask for the signatures
# again.
_MAX_TARGETS = 4096


class _SignatureFound(Exception):
    """Raised to leave `DataPlane.predict` when the signature is found, before the model runs.

    A frontend process that asks for a signature needs only the signature, and no run.
    """


class _OtherSignature(Exception):
    """Raised if the inputs of a call were decoded with an outdated signature.

    The frontend process must decode them again with the present signature.
    """


class _Target(NamedTuple):
    """A model and a signature, which the calls of frontend processes name by a number.

    Attributes:
      spec: the model, version and signature name.
      signature: a weak reference to the signature with which frontend processes decode inputs.
      tracker: predicts whether the next run of the signature is quick.
    """

    spec: ModelSpec
    signature: "weakref.ref[Signature]"
    tracker: LatencyTracker


class EngineEndpoint:
    """Answers the calls of the frontend processes with the data plane of the engine process."""

    def __init__(
        self, dataplane: DataPlaneInterface, threads: int, metrics: Metrics | None = None
    ) -> None:
        """Create an endpoint without connections.

        Args:
          dataplane: runs the models.
          threads: the largest number of inferences that run at the same time.
          metrics: records the requests that the queues refuse; None for no metrics.
        """
        self._dataplane = dataplane
        self._loop = ChannelLoop("engine-endpoint", self._receive, self._forget)
        self._queues = RequestQueues(dataplane.run_limits, metrics)
        self._run_pool = RunPool(threads)
        # The threads that run inferences. Their number is not the limit: the queues limit how many
        # inferences run at the same time.
        self._inferences = ThreadPool(_MAX_THREADS, "inference")
        self._admin = ThreadPool(_ADMIN_THREADS, "engine-admin")
        self._slow = ThreadPool(_SLOW_THREADS, "engine-slow")
        self._functions: dict[int, tuple[ThreadPool, Callable[..., Message]]] = {
            protocol.PREDICT: (self._inferences, self._predict),
            protocol.INFER: (self._inferences, self._infer),
            protocol.SIGNATURE: (self._admin, self._find_signature),
            protocol.METHOD: (self._admin, self._call_method),
        }
        self._cancellations: dict[tuple[Channel, int], Cancellation] = {}
        # The numbers of (model, signature) pairs begin at a random number, so that numbers of an
        # earlier engine process, which frontend processes may still use, are invalid.
        self._new_numbers = count(random.getrandbits(62))
        self._targets: dict[int, _Target] = {}
        self._target_numbers: dict[ModelSpec, int] = {}
        self._channels: list[Channel] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the threads that receive calls."""
        self._queues.start()
        self._loop.start()

    def add(self, channel: Channel) -> None:
        """Begin to answer the calls that arrive over a channel from a frontend process."""
        with self._lock:
            self._channels.append(channel)
        self._loop.add(channel)
        self.tell_state()

    def tell_state(self) -> None:
        """Send the frontend processes a message that the state of a version has changed."""
        is_available = self._dataplane.is_available
        with self._lock:
            channels = list(self._channels)
        for channel in channels:
            with contextlib.suppress(OSError):
                channel.send(protocol.STATE, 0, is_available)

    def close(self) -> None:
        """Close the connections.

        Call this method only after all calls of the frontend processes are answered.
        """
        self._loop.close()
        self._queues.close()
        for pool in (self._inferences, self._admin, self._slow):
            pool.shutdown(wait=False, cancel_futures=True)

    def _forget(self, channel: Channel) -> None:
        with self._lock:
            if channel in self._channels:
                self._channels.remove(channel)
        # Cancel the calls that have arrived over the closed channel, because no process waits for
        # their answers.
        for key, cancellation in list(self._cancellations.items()):
            if key[0] is channel:
                cancellation.cancel()

    def _receive(self, channel: Channel, message: Message) -> None:
        kind, number, _, *values = message
        if kind == protocol.CANCEL:
            cancellation = self._cancellations.get((channel, number))
            if cancellation is not None:
                cancellation.cancel()
            return
        if kind == protocol.PREDICT and self._predict_at_once(channel, number, values):
            return
        pool, function = self._functions[kind]
        if kind == protocol.METHOD and values[0] in _SLOW_METHODS:
            pool = self._slow
        if pool is not self._inferences:
            pool.run_soon(self._run, function, channel, number, values)
            return
        work = partial(self._run, partial(function, time.monotonic()), channel, number, values)
        cancellation = self._cancellations[channel, number] = Cancellation()
        model, timeout_ms = self._model_and_timeout(kind, values)
        ticket = _InferenceTicket(model, self, work, channel, number)
        if timeout_ms is not None:
            ticket.timeout_seconds = timeout_ms / 1000
        try:
            if self._queues.submit(ticket):
                ticket.start()
        except QueueFull as error:
            ticket.refuse(error)
        cancellation.add_callback(partial(self._withdraw, ticket))

    def _model_and_timeout(self, kind: int, values: Sequence[Any]) -> tuple[str, float | None]:
        """Return the model of an inference call and the time limit of the call.

        Args:
          kind: PREDICT or INFER.
          values: the contents of the call.

        Returns:
          The name of the model, "" if the name is unknown; and the time limit in milliseconds, None
          for no limit.
        """
        if kind == protocol.PREDICT:
            known = self._targets.get(values[0])
            return "" if known is None else known.spec.model, values[2]
        (target, *_), options = protocol.unpack(values[1])
        if not isinstance(target, ModelSpec):
            target = target[0][0] if target else ModelSpec("")
        return str(target.model), options["timeout_ms"]

    def _withdraw(self, ticket: "_InferenceTicket") -> None:
        if self._queues.withdraw(ticket):
            ticket.refuse(Cancelled(cancellations.MESSAGE))

    def _predict_at_once(self, channel: Channel, number: int, values: Sequence[Any]) -> bool:
        """Start a Predict call in the receiving thread, if the model is quick and no request waits.

        Args:
          channel: the connection to the frontend process.
          number: the number of the call.
          values: the contents of the call.

        Returns:
          Whether the call was started. If not, a thread of the pool must run it. If a started call
          waits for its batch, a thread of the pool answers the call.
        """
        target = self._targets.get(values[0])
        if target is None or not target.tracker.is_quick:
            return False
        ticket = InlineTicket(target.spec.model, self._run_pool)
        if not self._queues.try_start(ticket):
            return False
        _, output_filter, timeout_ms, packed = values
        self._cancellations[channel, number] = Cancellation()
        started = time.perf_counter()
        try:
            answer = self._start_predict(
                channel, number, target, channel.unpack(packed), output_filter, timeout_ms
            )
            if isinstance(answer, Pending):
                self._inferences.run_soon(self._finish_predict, channel, number, ticket, answer)
                return True
            target.tracker.record(time.perf_counter() - started)
        except Exception as error:
            answer = protocol.ERROR, protocol.pack_error(error, traceback.format_exc())
        self._finish_ticket(ticket)
        self._cancellations.pop((channel, number), None)
        # Queue the answer: the receiving thread sends the answers to all received messages
        # together, with one system call.
        channel.send_later(answer[0], number, *answer[1:])
        return True

    def _finish_predict(
        self, channel: Channel, number: int, ticket: Ticket, pending_answer: Pending[Message]
    ) -> None:
        """Answer a Predict call that the receiving thread has started, after its batch has run."""
        self._run(lambda *_: pending_answer.finish(), channel, number, ())
        self._finish_ticket(ticket)

    def _finish_ticket(self, ticket: Ticket) -> None:
        """Record that a request has run, and start the request that takes its place."""
        following = self._queues.finish(ticket)
        if following is not None:
            following.start()

    def _run(
        self,
        function: Callable[..., Message],
        channel: Channel,
        number: int,
        values: Sequence[Any],
    ) -> None:
        try:
            kind, *results = function(channel, number, *values)
            # Delete the inputs before the answer is sent, because the answer also tells the
            # frontend process which shared memory is free.
            del values
        except Exception as error:
            kind, results = protocol.ERROR, [protocol.pack_error(error, traceback.format_exc())]
        self._answer(channel, number, kind, *results)

    def _answer(self, channel: Channel, number: int, kind: int, *results: Any) -> None:
        self._cancellations.pop((channel, number), None)
        with contextlib.suppress(OSError):
            channel.send(kind, number, *results)

    def _predict(
        self,
        received_at: float,
        channel: Channel,
        number: int,
        target_number: int,
        output_filter: Sequence[str],
        timeout_ms: float | None,
        packed: Mapping[str, PackedArray],
    ) -> Message:
        """Answer a Predict call, which arrived at `received_at` seconds of `time.monotonic`."""
        # Unpack the arrays before anything can fail: only unpacked arrays give their shared memory
        # back when they are deleted.
        inputs = channel.unpack(packed)
        target = self._targets.get(target_number)
        if target is None:
            return (protocol.OTHER_SIGNATURE,)
        started = time.perf_counter()
        left_ms = remaining_ms(timeout_ms, received_at)
        answer = pending.wait(
            self._start_predict(channel, number, target, inputs, output_filter, left_ms)
        )
        # While the model is quick, the tracker gets only the times of runs in the receiving thread,
        # from `_predict_at_once`.
        if not target.tracker.is_quick:
            target.tracker.record(time.perf_counter() - started)
        return answer

    def _start_predict(
        self,
        channel: Channel,
        number: int,
        target: _Target,
        inputs: Mapping[str, Array],
        output_filter: Sequence[str],
        timeout_ms: float | None,
    ) -> Message | Pending[Message]:
        """Start a Predict call in the engine process.

        Returns:
          The answer, or the pending answer if the call waits for other calls of its batch.
        """

        def read_inputs(signature: Signature) -> Mapping[str, Array]:
            if target.signature() is not signature:
                raise _OtherSignature
            return inputs

        timeline = Timeline()

        def pack(prediction: Prediction) -> Message:
            outputs = channel.pack(prediction.outputs)
            return protocol.RESULT, prediction.version, outputs, timeline.pack_run()

        try:
            prediction = self._dataplane.start_predict(
                target.spec,
                read_inputs,
                output_filter,
                timeout_ms=timeout_ms,
                cancellation=self._cancellations.get((channel, number)),
                timeline=timeline,
            )
        except _OtherSignature:
            return (protocol.OTHER_SIGNATURE,)
        return pending.transform(prediction, pack)

    def _find_signature(self, channel: Channel, number: int, spec: Sequence[Any]) -> Message:
        signatures: list[Signature] = []

        def read_inputs(signature: Signature) -> Mapping[str, Array]:
            signatures.append(signature)
            raise _SignatureFound

        # Let `predict` find the signature. `predict` passes the signature to `read_inputs`, which
        # raises an exception, so that the model does not run. Before that, `predict` makes the same
        # checks as for any request, so the errors are those of a single-process server.
        with contextlib.suppress(_SignatureFound):
            self._dataplane.predict(ModelSpec(*spec), read_inputs)
        (signature,) = signatures
        return (
            protocol.RESULT,
            self._add_target(ModelSpec(*spec), signature),
            protocol.pack(replace(signature, defaults={})),
        )

    def _call_method(self, channel: Channel, number: int, name: str, packed: bytes) -> Message:
        arguments, options = protocol.unpack(packed)
        result = getattr(self._dataplane, name)(*arguments, **options)
        return protocol.RESULT, protocol.pack(result)

    def _infer(
        self, received_at: float, channel: Channel, number: int, name: str, packed: bytes
    ) -> Message:
        """Answer an inference call other than Predict; `received_at` as for `_predict`."""
        arguments, options = protocol.unpack(packed)
        options["timeout_ms"] = remaining_ms(options["timeout_ms"], received_at)
        options["cancellation"] = self._cancellations.get((channel, number))
        options["timeline"] = timeline = Timeline()
        result = pending.wait(getattr(self._dataplane, name)(*arguments, **options))
        return protocol.RESULT, protocol.pack(result), timeline.pack_run()

    def _add_target(self, spec: ModelSpec, signature: Signature) -> int:
        """Return the number that stands for a model and its signature; choose one if needed."""
        with self._lock:
            number = self._target_numbers.get(spec)
            if number is None or self._targets[number].signature() is not signature:
                self._targets.pop(number or 0, None)
                if len(self._targets) >= _MAX_TARGETS:
                    self._targets.clear()
                    self._target_numbers.clear()
                number = self._target_numbers[spec] = next(self._new_numbers)
                self._targets[number] = _Target(spec, weakref.ref(signature), LatencyTracker())
            return number


class _InferenceTicket(RunnableTicket):
    """Represents an inference call in the queues, from its arrival until it has run."""

    __slots__ = ("_channel", "_endpoint", "_number", "_work")

    def __init__(
        self,
        model: str,
        endpoint: EngineEndpoint,
        work: Callable[[], None],
        channel: Channel,
        number: int,
    ) -> None:
        super().__init__(model, endpoint._run_pool)
        self._endpoint = endpoint
        self._work = work
        self._channel = channel
        self._number = number

    def start(self) -> None:
        self._endpoint._inferences.run_soon(self._endpoint._queues.run, self)

    def refuse(self, error: TpuserveError) -> None:
        channel, number = self._channel, self._number
        details = protocol.pack_error(error, "")
        self._endpoint._answer(channel, number, protocol.ERROR, details)

    def run(self) -> None:
        work = self._work
        # Delete the reference to the inputs, so that their shared memory is freed when this
        # inference ends, and not after the next one.
        del self._work
        work()
