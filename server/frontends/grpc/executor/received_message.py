"""The request message of a call that came through the completion queue."""

from typing import Any

import grpc
from grpc import _server

from server.frontends.grpc.executor.call_admission import AdmittedCall, CallAdmission
from server.request import RequestContext
from tpuserve.errors import TpuserveError


class ReceivedMessage:
    """The request message of a call, and the data that the executor keeps about the call.

    Attributes:
      state: grpcio's private state of the call.
      request: the context with which the call was queued; None before that.
      received_ns: when the message arrived, in ns of `time.perf_counter_ns`.
      refusal: why the call was not admitted; None if it was.
      queue_refusal: why the queue of its model has refused the call; None if it has not.
      unfinished_call: the state of the handler that must run again; None if it need not.
    """

    __slots__ = (
        "_event",
        "admitted",
        "request",
        "peer_name",
        "queue_refusal",
        "received_ns",
        "refusal",
        "state",
        "unfinished_call",
    )

    def __init__(self, event: Any, state: Any, peer_name: str) -> None:
        self._event = event
        self.state = state
        self.peer_name = peer_name
        self.admitted: AdmittedCall | None = None
        self.request: RequestContext | None = None
        self.received_ns = 0
        self.refusal: TpuserveError | None = None
        self.unfinished_call: object = None
        self.queue_refusal: TpuserveError | None = None

    @property
    def context(self) -> grpc.ServicerContext:
        """The context of the call."""
        context: grpc.ServicerContext = _server._Context(self._event, self.state, None)
        return context

    @property
    def raw(self) -> bytes | None:
        """The serialised message; None before it has come, and after `__next__` has returned it."""
        raw: bytes | None = self.state.request
        return raw

    def admit(self, admission: CallAdmission | None) -> None:
        """Admit or refuse the call; its `admitted` or `refusal` has the result."""
        message = self.state.request
        if admission is None or message is None:
            return
        try:
            self.admitted = admission.admit(message, self.peer_name)
        except TpuserveError as error:
            self.refusal = error

    def __iter__(self) -> "ReceivedMessage":
        return self

    def __next__(self) -> bytes:
        message: bytes | None = self.state.request
        if message is None:
            raise StopIteration
        self.state.request = None
        return message
