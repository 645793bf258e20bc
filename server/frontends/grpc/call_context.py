"""The state of one gRPC call, from which metrics, traces and the access log are written."""

from server.admission.cancellation import Cancellation
from server.admission.memory_budget import MemoryReservation
from server.dataplane import ModelSpec
from server.metrics.timeline import Timeline
from tpuserve.errors import InvalidInput

_UNKNOWN_MODEL = ModelSpec("")


class CallContext:
    """The state of one gRPC call. The handler of the call fills it in.

    Attributes:
      memory: the memory that the call has reserved in the memory budget of the server. The handler
        enlarges the reservation before it allocates more memory.
      cancellation: a flag that is set when the call ends, for example because the client has
        cancelled the call. Work that runs for the call then stops.
      timeout_ms: the milliseconds in which the call must be answered; None for no limit.
      model_spec: the model that the request names. The name is empty until the handler has parsed
        the request.
      queue_model: the name of the model in whose queue the call has waited; None if the call has
        not waited in a queue.
      version: the version of the model that has answered; None until then.
      error: the message of the error with which the call ends; empty for no error.
      timeline: the times at which the stages of the call, such as the wait in the queue, began and
        ended.
    """

    memory: MemoryReservation

    __slots__ = (
        "cancellation",
        "error",
        "memory",
        "model_spec",
        "queue_model",
        "timeline",
        "timeout_ms",
        "version",
    )

    def __init__(self, started_ns: int = 0) -> None:
        """Create the state of a call. Its `memory` is not set until the call is admitted.

        Args:
          started_ns: the time at which the call began, in nanoseconds of `time.perf_counter_ns`; 0
            for the present time.
        """
        self.timeline = Timeline(started_ns)
        self.cancellation = Cancellation()
        self.timeout_ms: float | None = None
        self.model_spec = _UNKNOWN_MODEL
        self.queue_model: str | None = None
        self.version: int | None = None
        self.error = ""

    def set_model_spec(self, model_spec: ModelSpec) -> None:
        """Set the model that the parsed request names.

        Raises:
          InvalidInput: the call has waited in the queue of another model, because the name was not
            found in the serialised request. The call must not run then: the limits of its model
            would not apply.
        """
        self.model_spec = model_spec
        if self.queue_model is not None and self.queue_model != model_spec.model:
            raise InvalidInput(
                f"the name of the model, {model_spec.model!r}, comes after too many other fields "
                f"of the request, or several times. Write the field with the name first, and once."
            )
