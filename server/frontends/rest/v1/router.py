"""Answers the requests to TensorFlow Serving's REST API, below /v1/."""

import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial

from server.admission.memory_budget import MemoryBudget
from server.admission.nonblocking import WouldBlock
from server.dataplane import DataPlane, ModelSpec
from server.frontends.rest import errors
from server.frontends.rest.dispatch.router import Route
from server.frontends.rest.transport.headers import Headers
from server.frontends.rest.transport.responses import JSON, Response
from server.frontends.rest.v1 import inference, models, paths
from server.frontends.rest.v1.inference import EncodedResult
from server.parsing.request_parser import RequestParser
from server.request import RequestContext
from server.servables.pending import Pending
from tpuserve.errors import InvalidInput
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE


class V1Router:
    """The router of TensorFlow Serving's REST API.

    The class implements the interface `dispatch.router.Router`.

    Args:
      memory_budget: Bounds the memory of all requests together. Outputs reserve memory in it
        while they are encoded. None means no bound.
      lists_names_only: Whether the response to GET /v1/models has only the names of the models,
        as KServe requires. If False, it also has their status.
    """

    prefix = "/v1/"

    def __init__(
        self,
        dataplane: DataPlane,
        parser: RequestParser,
        memory_budget: MemoryBudget | None = None,
        *,
        lists_names_only: bool = False,
    ) -> None:
        self._lists_names_only = lists_names_only
        self._memory_budget = MemoryBudget(sys.maxsize) if memory_budget is None else memory_budget
        self._dataplane = dataplane
        self._parser = parser

    def parse_route(self, method: str, path: str) -> Route:
        """Return the endpoint that a request addresses. Arguments as for `v1.paths.parse_path`."""
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
            return Response(200, self._describe(route), model=route.model, version=route.version)
        signature = ""
        try:
            request = self._parser.parse(body, context)
            with closing(request):
                signature = request.signature_name or DEFAULT_SIGNATURE
                model_spec = ModelSpec(route.model, route.version, signature, route.label)
                infer = inference.OPERATIONS[route.operation]
                result = infer(self._dataplane, context, model_spec, request, self._memory_budget)
        except WouldBlock:
            raise
        except Exception as error:
            return _error_response(error, route, signature)
        if isinstance(result, Pending):
            return result.then(partial(_respond, result.finish, route, signature))
        return _success_response(result, route, signature)

    def _describe(self, route: Route) -> bytes:
        if route.operation == "metadata":
            if not route.model:
                raise InvalidInput("Missing model name in request.")
            model_spec = ModelSpec(route.model, route.version, label=route.label)
            return models.encode_metadata(self._dataplane.metadata(model_spec, ["signature_def"]))
        if route.operation == "statistics":
            if not route.model:
                raise InvalidInput("Missing model name in request.")
            model_spec = ModelSpec(route.model, route.version, label=route.label)
            return models.encode_statistics(self._dataplane.statistics(model_spec))
        if route.model:
            # Ignore a version label in the path, as TensorFlow Serving does.
            return models.encode_status(self._dataplane.status(route.model, route.version))
        if route.version is not None or route.label is not None:
            raise InvalidInput("Missing model name in request.")
        listed = self._dataplane.list_models()
        return models.encode_names(listed) if self._lists_names_only else models.encode_list(listed)


def _respond(finish: Callable[[], EncodedResult], route: Route, signature: str) -> Response:
    try:
        return _success_response(finish(), route, signature)
    except Exception as error:
        return _error_response(error, route, signature)


def _success_response(result: EncodedResult, route: Route, signature: str) -> Response:
    body, version, memory = result
    return Response(200, body, JSON, (), "OK", route.model, version, signature, memory)


def _error_response(error: Exception, route: Route, signature: str) -> Response:
    # Convert errors to responses in this module, where the signature is known, because the access
    # log shows the signature of failed requests too.
    response = errors.response_to_error(error)
    return response._replace(model=route.model, version=route.version, signature=signature)
