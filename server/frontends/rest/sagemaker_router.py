"""Answers the requests of SageMaker to a container with several models: paths below /models.

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/mms-container-apis.html.
"""

import json
import re
from urllib.parse import unquote

from server.codec import json_parser
from server.dataplane import DataPlane
from server.frontends.rest import errors
from server.frontends.rest.dispatch.router import Route
from server.frontends.rest.transport.responses import JSON, Headers, Response
from server.frontends.rest.v1_router import V1Router
from server.request import RequestContext
from server.servables.pending import Pending
from tpuserve.errors import (
    Code,
    InvalidInput,
    InvalidJson,
    ModelNotFound,
    NotFound,
    TpuserveError,
    VersionNotFound,
)


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


_PATH = re.compile(r"/models(?:/([^/]+)(/invoke)?)?")
# (HTTP method, whether the path names a model, whether the path ends with /invoke) → operation.
_OPERATIONS = {
    ("POST", False, False): "load",
    ("GET", False, False): "list",
    ("GET", True, False): "describe",
    ("DELETE", True, False): "unload",
    ("POST", True, True): "predict",
}
_MAX_NAME = 256
# The HTTP status for a model that does not fit into the memory. SageMaker then unloads other models
# and sends the request again.
_OUT_OF_RESOURCES = 507
_SERVER_FAULT = 500


class SageMakerRouter:
    """The router of the paths with which SageMaker loads, lists, unloads and invokes models.

    The class implements the interface `dispatch.router.Router`.

    Args:
      v1: The router whose method `handle` answers the requests that run a model.
    """

    prefix = "/models"

    def __init__(self, dataplane: DataPlane, v1: V1Router) -> None:
        self._dataplane = dataplane
        self._v1 = v1

    def parse_route(self, method: str, path: str) -> Route:
        """Return the endpoint that a request addresses.

        Raises:
          NotFound: SageMaker defines no such path, or not with this HTTP method.
        """
        match = _PATH.fullmatch(path.partition("?")[0])
        name, invoke = match.groups() if match is not None else ("", None)
        operation = _OPERATIONS.get((method, bool(name), bool(invoke)))
        if match is None or operation is None:
            raise NotFound(
                f"there is no {method} {path[:128]!r}. Send POST or GET /models, GET or DELETE "
                f"/models/NAME, or POST /models/NAME/invoke."
            )
        template = "/models" + ("/{model}" if name else "") + (invoke or "")
        return Route(
            unquote(name or ""),
            operation=operation,
            runs_model=operation == "predict",
            has_body=operation == "load",
            changes_models=operation in ("load", "unload"),
            template=template,
        )

    def handle(
        self, route: Route, headers: Headers, body: bytes, context: RequestContext
    ) -> Response | Pending[Response]:
        """Answer one request.

        Raises:
          ModelNotFound: No configured model has the name in the path, or a load request names a
            directory without a model.
        """
        if route.runs_model:
            return self._v1.handle(route, headers, body, context)
        if route.operation == "load":
            return self._load(body)
        if route.operation == "unload":
            self._dataplane.remove_model(route.model)
            return Response(200, b"", JSON, model=route.model)
        models = [
            {"modelName": name, "modelUrl": path}
            for name, path in sorted(self._dataplane.base_paths().items())
        ]
        if route.operation == "list":
            return Response(200, json.dumps({"models": models}).encode())
        for model in models:
            if model["modelName"] == route.model:
                return Response(200, json.dumps(model).encode(), model=route.model)
        raise ModelNotFound(f"no model is named {route.model!r}. Load the model first.")

    def _load(self, body: bytes) -> Response:
        document = json_parser.parse_json(body)
        values = document if type(document) is dict else {}
        name, url = values.get("model_name"), values.get("url")
        if not (isinstance(name, str) and name and isinstance(url, str) and url):
            raise InvalidJson(
                'the request is no object with the texts "model_name" and "url". Send the name of '
                "the model and the path of its directory."
            )
        if len(name) > _MAX_NAME or not name.isprintable():
            raise InvalidInput(
                f"the model_name is {name[:_MAX_NAME]!r}. Send a name of at most {_MAX_NAME} "
                f"printable characters."
            )
        if not url.startswith("/") or not url.isprintable():
            # Accept only local paths, so that clients cannot make the server connect to a host of
            # their choice. Accept only printable paths, so that clients cannot add lines to the
            # log.
            raise InvalidInput(
                f"the url is {url[:_MAX_NAME]!r}. Send the absolute path of a directory on the "
                f"server, such as /opt/ml/models/1f3a/model."
            )
        try:
            self._dataplane.add_model(name, url)
        except VersionNotFound as error:
            raise ModelNotFound(
                f"there is no model in {url[:_MAX_NAME]!r}. Send the path of a directory that is a "
                f"SavedModel, or holds its numbered versions."
            ) from error
        except TpuserveError as error:
            cause = error.__cause__ if isinstance(error.__cause__, TpuserveError) else error
            if cause.code is Code.RESOURCE_EXHAUSTED:
                return errors.error_response(_OUT_OF_RESOURCES, str(cause), cause.code)
            if errors.HTTP_STATUS[cause.code] == _SERVER_FAULT:
                # The client has chosen the model, so a model that cannot be loaded is no fault of
                # the server.
                return errors.error_response(400, str(error), Code.FAILED_PRECONDITION)
            raise
        return Response(200, b"", JSON, model=name)
