"""The state of one gRPC call, which its handler sets, and metrics and the access log read."""

from server.admission.cancellation import Cancellation
from server.admission.memory_budget import MemoryReservation
from server.dataplane import ModelSpec
from server.metrics.timeline import Timeline

_UNKNOWN_MODEL = ModelSpec("")


class CallContext:
    """The state of one gRPC call.

    Attributes:
      memory: the memory that the call has reserved. The call reserves more before it allocates
        more.
      cancellation: is cancelled when the call ends, whether or not it is answered.
      timeout_ms: the milliseconds in which the call must be answered; None for no limit.
      model_spec: the model that the request names. Its name is empty until the handler has parsed
        the request.
      version: the version of the model that has answered; None until then.
      error: the message of the error with which the call ends; empty for no error.
      timeline: the times of the call.
    """

    memory: MemoryReservation

    __slots__ = (
        "cancellation",
        "error",
        "memory",
        "model_spec",
        "timeline",
        "timeout_ms",
        "version",
    )

    def __init__(self, started_ns: int = 0) -> None:
        """Create the state of a call; it has no `memory` until it is admitted.

        Args:
          started_ns: the time at which the call began, in nanoseconds of `time.perf_counter_ns`; 0
            for the time of this call of the constructor.
        """
        self.timeline = Timeline(started_ns)
        self.cancellation = Cancellation()
        self.timeout_ms: float | None = None
        self.model_spec = _UNKNOWN_MODEL
        self.version: int | None = None
        self.error = ""
