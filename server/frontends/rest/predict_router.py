"""Answers predict requests to one fixed model at a path that a cloud service prescribes."""

from server.frontends.rest.dispatch.router import Route
from server.frontends.rest.v1_router import V1Router
from tpuserve.errors import InvalidInput, NotFound


class PredictRouter:
    """The router of one path, at which clients send predict requests to one fixed model.

    Vertex AI and SageMaker prescribe the path. Requests and responses have the same JSON as at
    TensorFlow Serving's path /v1/models/MODEL:predict. The class implements the interface
    `dispatch.router.Router`.
    """

    def __init__(self, path: str, model: str, v1: V1Router) -> None:
        self.prefix = path.lower()
        self._path = path
        self._route = Route(model, operation="predict", runs_model=True, template=path)
        self.handle = v1.handle

    def parse_route(self, method: str, path: str) -> Route:
        """Return the endpoint that a request addresses."""
        if path.partition("?")[0] != self._path:
            raise NotFound(f"there is no path {path[:128]!r}. Send {self._path}.")
        if method != "POST":
            raise InvalidInput(f"{self._path} does not take the method {method}. Send POST.")
        return self._route
