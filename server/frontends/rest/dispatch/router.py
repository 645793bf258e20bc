"""The interface between the dispatcher and the REST APIs, each of which has a router."""

from dataclasses import dataclass
from typing import Protocol

from server.frontends.rest.transport.responses import Headers, Response
from server.request import RequestContext
from server.servables.pending import Pending


@dataclass(frozen=True)
class Route:
    """The endpoint that the path and the HTTP method of a request address.

    Attributes:
      version: The model version. None if the path names no version.
      label: The version label. None if the path names no label.
      runs_model: Whether the request has a body and runs a model, as predict does. Admission
        control limits such requests, and metrics record their latency under `operation`.
      describes_model: Whether the answer needs the loaded model, although the request does not run
        it, as a request for metadata does.
      has_body: Whether the request has a body although it runs no model, as a request that loads a
        model does. Admission control limits such requests too.
      template: The path with placeholders, such as "/v1/models/{model}:predict". Empty for a path
        that the API does not have.
    """

    model: str = ""
    version: int | None = None
    label: str | None = None
    operation: str = ""
    runs_model: bool = False
    has_body: bool = False
    describes_model: bool = False
    changes_models: bool = False
    signature_name: str = ""
    template: str = ""


class Router(Protocol):
    """The handler of all paths of one REST API, for example of TensorFlow Serving's API below /v1/.

    The requests of all routers pass the same admission control, checks of API keys, decompression,
    time limits, access log and metrics, so that a router does not implement these.
    """

    @property
    def prefix(self) -> str:
        """The beginning of all paths of the API, in lower case, such as "/v1/".

        The prefix of a path is compared without regard to upper and lower case.
        """

    def parse_route(self, method: str, path: str) -> Route:
        """Return the endpoint that a request addresses."""

    def handle(
        self,
        route: Route,
        headers: Headers,
        body: bytes,
        context: RequestContext,
    ) -> Response | Pending[Response]:
        """Answer one request. Several threads can call this method at the same time.

        If the request must wait for a batch, the method returns a Pending, which has the response
        later, so that no thread waits.

        Args:
          body: The raw body, decompressed if it was gzip. Empty unless `route.runs_model` or
            `route.has_body`.
          context: The context of the request. Its memory covers the body already, and is None if
            the body is too small to be counted.
        """
