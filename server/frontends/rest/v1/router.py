"""TensorFlow Serving's routes below /v1/."""

from server.admission.nonblocking import WouldBlock
from server.dataplane import DataPlane, ModelSpec
from server.frontends.rest import errors
from server.frontends.rest.dispatch.router import Route
from server.frontends.rest.transport.headers import Headers
from server.frontends.rest.transport.responses import JSON, Response
from server.frontends.rest.v1 import inference, models, paths
from tpuserve.errors import InvalidInput
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE


class V1Router:
    """Answers TensorFlow Serving's RESTful API; see `dispatch.router.Router`."""

    prefix = "/v1/"

    def __init__(self, dataplane: DataPlane) -> None:
        """Create a router that answers requests with the models of a data plane."""
        self._dataplane = dataplane

    def parse_route(self, method: str, path: str) -> Route:
        """Return the endpoint that a request addresses; see `paths.parse_path`."""
        return paths.parse_path(method, path)

    def handle(
        self, route: Route, headers: Headers, body: bytes, *, timeout_ms: float | None
    ) -> Response:
        """Answer one request; see `dispatch.router.Router.handle`."""
        if route.runs_model:
            return self._infer(route, body, timeout_ms)
        return Response(200, self._describe(route), model=route.model, version=route.version)

    def _infer(self, route: Route, body: bytes, timeout_ms: float | None) -> Response:
        signature = ""
        try:
            request, requested_signature = inference.parse_request(body)
            signature = requested_signature or DEFAULT_SIGNATURE
            model_spec = ModelSpec(route.model, route.version, signature, route.label)
            infer = inference.OPERATIONS[route.operation]
            encoded, version = infer(self._dataplane, model_spec, request, timeout_ms)
        except WouldBlock:
            raise
        except Exception as error:
            # Convert the error to a response here, where the signature is known, because the access
            # log shows the signature of failed requests too.
            response = errors.response_to_error(error)
            return response._replace(model=route.model, version=route.version, signature=signature)
        return Response(200, encoded, JSON, (), "OK", route.model, version, signature)

    def _describe(self, route: Route) -> bytes:
        if route.operation == "metadata":
            if not route.model:
                raise InvalidInput("Missing model name in request.")
            model_spec = ModelSpec(route.model, route.version, label=route.label)
            return models.encode_metadata(self._dataplane.metadata(model_spec, ["signature_def"]))
        if route.model:
            # Ignore a version label in the path, as TensorFlow Serving does.
            return models.encode_status(self._dataplane.status(route.model, route.version))
        if route.version is not None or route.label is not None:
            raise InvalidInput("Missing model name in request.")
        return models.encode_list(self._dataplane.list_models())
