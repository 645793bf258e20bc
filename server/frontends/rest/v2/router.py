"""Answers the REST requests of the Open Inference Protocol, below /v2."""

import json
import sys
from collections.abc import Callable
from functools import partial

from server.admission.memory_budget import MemoryBudget
from server.admission.nonblocking import WouldBlock
from server.codec import json_parser
from server.dataplane import DataPlane, ModelSpec
from server.frontends.open_inference.describer import Describer
from server.frontends.rest import errors
from server.frontends.rest.dispatch.router import Route
from server.frontends.rest.transport.headers import Headers
from server.frontends.rest.transport.responses import JSON, Response
from server.frontends.rest.v2 import infer, paths
from server.frontends.rest.v2.infer import InferResult
from server.parsing.request_parser import RequestParser
from server.request import RequestContext
from server.servables.pending import Pending
from tpuserve.errors import InvalidJson
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE

_BINARY = b"application/octet-stream"


class V2Router:
    """The router of the Open Inference Protocol.

    The class implements the interface `dispatch.router.Router`.

    Args:
      memory_budget: Bounds the memory of all requests together. Outputs reserve memory in it
        while they are encoded. None means no bound.
    """

    prefix = "/v2"

    def __init__(
        self,
        dataplane: DataPlane,
        parser: RequestParser,
        describer: Describer,
        memory_budget: MemoryBudget | None = None,
    ) -> None:
        self._dataplane = dataplane
        self._parser = parser
        self._describer = describer
        self._memory_budget = MemoryBudget(sys.maxsize) if memory_budget is None else memory_budget

    def parse_route(self, method: str, path: str) -> Route:
        """Return the endpoint that a request addresses. Arguments as for `v2.paths.parse_path`."""
        return paths.parse_path(method, path)

    def handle(
        self,
        route: Route,
        headers: Headers,
        body: bytes,
        context: RequestContext,
    ) -> Response | Pending[Response]:
        """Answer one request. The arguments are those of `dispatch.router.Router.handle`."""
        if not route.runs_model:
            text = json.dumps(self._describe(route, body)).encode()
            return Response(200, text, model=route.model, version=route.version)
        signature = ""
        try:
            context, request, binary = infer.parse_body(self._parser, context, headers, body)
            signature = request.signature_name or DEFAULT_SIGNATURE
            result = infer.run_model(
                self._dataplane,
                context,
                _spec(route, request.signature_name),
                request,
                binary,
                self._memory_budget,
            )
        except WouldBlock:
            raise
        except Exception as error:
            return _error_response(error, route, signature)
        if isinstance(result, Pending):
            return result.then(partial(_respond, result.finish, route, signature))
        return _success_response(result, route)

    def _describe(self, route: Route, body: bytes) -> object:
        describer = self._describer
        if route.operation == "server_metadata":
            return describer.server_metadata()
        if route.operation == "repository_index":
            return describer.repository_index(_wants_ready_models(body))["models"]
        if route.operation == "load":
            return describer.load_model(route.model)
        if route.operation == "unload":
            return describer.unload_model(route.model)
        spec = _spec(route, route.signature_name)
        if route.operation == "config":
            return describer.model_config(spec)
        if route.operation == "stats":
            return describer.model_statistics(spec)
        if route.operation == "metadata":
            return describer.model_metadata(spec)
        describer.check_ready(spec)
        return {"name": route.model, "ready": True}


def _spec(route: Route, signature_name: str) -> ModelSpec:
    return ModelSpec(route.model, route.version, signature_name, is_open_inference=True)


def _wants_ready_models(body: bytes) -> bool:
    """Return whether a request for the index of the model repository asks for ready models only."""
    document = json_parser.parse_json(body) if body.strip() else {}
    value = document.get("ready", False) if type(document) is dict else None
    if type(value) is not bool:
        raise InvalidJson("the request is no object with a boolean 'ready'. Send {} or no body.")
    return value


def _respond(finish: Callable[[], InferResult], route: Route, signature: str) -> Response:
    try:
        return _success_response(finish(), route)
    except Exception as error:
        return _error_response(error, route, signature)


def _success_response(result: InferResult, route: Route) -> Response:
    content_type = JSON
    headers: Headers = ()
    if result.json_bytes is not None:
        content_type = _BINARY
        headers = ((infer.JSON_SIZE_HEADER, b"%d" % result.json_bytes),)
    return Response(
        200,
        result.body,
        content_type,
        headers,
        "OK",
        route.model,
        result.version,
        result.signature_name,
        result.memory,
    )


def _error_response(error: Exception, route: Route, signature: str) -> Response:
    # Convert errors to responses in this module, where the signature is known, because the access
    # log shows the signature of failed requests too.
    response = errors.response_to_error(error)
    return response._replace(model=route.model, version=route.version, signature=signature)
