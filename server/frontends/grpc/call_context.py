"""The state of one gRPC call: its handler fills it in, metrics and the access log read it."""

from server.dataplane import ModelSpec

_UNKNOWN_MODEL = ModelSpec("")


class CallContext:
    """The state of one gRPC call.

    Attributes:
      timeout_ms: the milliseconds in which the call must be answered; None for no limit.
      model_spec: the model that the request names. Its name is empty until the handler has parsed
        the request.
      version: the version of the model that has answered; None until then.
    """

    __slots__ = ("model_spec", "timeout_ms", "version")

    def __init__(self, timeout_ms: float | None = None) -> None:
        """Create the state of a call whose request is not parsed yet."""
        self.timeout_ms = timeout_ms
        self.model_spec = _UNKNOWN_MODEL
        self.version: int | None = None
