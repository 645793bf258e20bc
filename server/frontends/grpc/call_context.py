"""The state of one gRPC call, from which metrics, traces and the access log are written."""

from server.dataplane import ModelSpec
from server.metrics.timeline import Timeline
from server.request import RequestContext
from tpuserve.errors import InvalidInput

_UNKNOWN_MODEL = ModelSpec("")


class CallContext:
    """The state of one gRPC call. The handler of the call fills it in.

    Attributes:
      request: the context of the request. Its deadline, memory and model are those of the call once
        the call is admitted and may run.
      model_spec: the model that the request names. The name is empty until the handler has parsed
        the request.
      version: the version of the model that has answered; None until then.
      error: the message of the error with which the call ends; empty for no error.
    """

    __slots__ = ("error", "is_queued", "model_spec", "request", "version")

    def __init__(self, request: RequestContext | None = None) -> None:
        self.request = RequestContext() if request is None else request
        self.model_spec = _UNKNOWN_MODEL
        self.is_queued = False
        self.version: int | None = None
        self.error = ""

    @property
    def timeline(self) -> Timeline:
        """The times of the stages of the call."""
        return self.request.timeline

    def set_model_spec(self, model_spec: ModelSpec) -> None:
        """Set the model that the parsed request names.

        Raises:
          InvalidInput: the call has waited in the queue of another model, because the name was not
            found in the serialised request.
        """
        self.model_spec = model_spec
        if self.is_queued and self.request.model != model_spec.model:
            raise InvalidInput(
                f"the name of the model, {model_spec.model!r}, comes after too many other fields "
                f"of the request, or several times. Write the field with the name first, and once."
            )
