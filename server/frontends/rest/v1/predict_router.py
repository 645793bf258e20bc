"""The router of a further path that predicts with one model, as cloud services require."""

from server.frontends.rest.dispatch.router import Route
from server.frontends.rest.v1.router import V1Router
from tpuserve.errors import InvalidInput, NotFound


class PredictRouter:
    """Answers one path as TensorFlow Serving's :predict of a model; see `dispatch.router.Router`.

    Vertex AI and SageMaker choose the path, and send and expect the same JSON.
    """

    def __init__(self, path: str, model: str, v1: V1Router) -> None:
        """Create a router.

        Args:
          path: The path.
          model: The name of the model.
          v1: Answers the requests.
        """
        self.prefix = path.lower()
        self._path = path
        self._route = Route(model, operation="predict", runs_model=True, template=path)
        self.handle = v1.handle

    def parse_route(self, method: str, path: str) -> Route:
        """Return the endpoint that a request addresses.

        Args:
          method: The HTTP method.
          path: The path as sent, with the query string.

        Raises:
          NotFound: The path begins with the path of this router, and is another path.
          InvalidInput: The method is not POST.
        """
        if path.partition("?")[0] != self._path:
            raise NotFound(f"there is no path {path[:128]!r}. Send {self._path}.")
        if method != "POST":
            raise InvalidInput(f"{self._path} does not take the method {method}. Send POST.")
        return self._route
