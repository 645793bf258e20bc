"""The interface between the dispatcher and the routes of a REST API."""

from dataclasses import dataclass
from typing import Protocol

from server.admission.cancellation import Cancellation
from server.admission.memory_budget import MemoryReservation
from server.frontends.rest.transport.headers import Headers
from server.frontends.rest.transport.responses import Response
from server.metrics.timeline import Timeline
from server.servables.pending import Pending


@dataclass(frozen=True)
class Route:
    """The endpoint that a request addresses.

    Attributes:
      model: The model's name. Empty if the path names no model.
      version: The model version. None if the path names no version.
      label: The version label. None if the path names no label.
      operation: The name of the operation, for example "predict" or "status".
      runs_model: Whether the request has a body and runs a model, as predict does. Such a request
        counts in admission control, and its latency is recorded under its operation.
      changes_models: Whether the request loads or unloads a model, which may take minutes.
      has_body: Whether a request that runs no model has a body. Such a request counts in admission
        control too.
      template: The path with placeholders, such as "/v1/models/{model}:predict". Empty for a path
        that the API does not have.
    """

    model: str = ""
    version: int | None = None
    label: str | None = None
    operation: str = ""
    runs_model: bool = False
    has_body: bool = False
    changes_models: bool = False
    template: str = ""


class Router(Protocol):
    """The routes of one REST API, for example TensorFlow Serving's below /v1/.

    The dispatcher applies admission control, API keys, gzip, time limits, the access log and
    metrics to all routers.
    """

    @property
    def prefix(self) -> str:
        """The beginning of all paths of the API, in lower case, such as "/v1/".

        Paths are matched without regard to case.
        """

    def parse_route(self, method: str, path: str) -> Route:
        """Return the endpoint that a request addresses.

        Args:
          method: The HTTP method.
          path: The path as sent, percent-encoded and with the query string.

        Raises:
          TpuserveError: The API has no such path. The error becomes the response.
        """

    def handle(
        self,
        route: Route,
        headers: Headers,
        body: bytes,
        *,
        timeout_ms: float | None,
        cancellation: Cancellation | None = None,
        reservation: MemoryReservation | None = None,
        timeline: Timeline | None = None,
    ) -> Response | Pending[Response]:
        """Answer one request. Several threads may call this method at the same time.

        If the request waits for a batch, return a Pending of the response, so that no thread waits.

        Args:
          route: The result of `parse_route`.
          headers: The headers of the request, with names in lower case.
          body: The raw body, decompressed if it was gzip. Empty unless `route.runs_model` or
            `route.has_body`.
          timeout_ms: The milliseconds left for the answer. None means no limit.
          cancellation: Tells whether the client still waits for the answer. None if the caller, the
            event loop, cannot learn of a disconnect before the answer.
          reservation: The memory of the request, which holds the body already. None if the body is
            too small to be counted.
          timeline: Records the times of the request. None means that nothing is recorded.

        Raises:
          WouldBlock: The request would have to wait, but the caller, the event loop, has forbidden
            that.
          Exception: Any other exception becomes an error response, see `rest.errors`.
        """
