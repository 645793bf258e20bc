"""Answers the REST requests of the Open Inference Protocol, below /v2."""

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from server.admission.memory_budget import MemoryBudget, MemoryReservation
from server.admission.nonblocking import WouldBlock
from server.codec import json_parser
from server.codec.array_to_json import JsonText
from server.codec.infer_request import InferRequest, limit_time
from server.codec.infer_response import encode_infer_response
from server.dataplane import DataPlane, ModelSpec, Prediction
from server.frontends import output_memory
from server.frontends.open_inference_describer import Describer
from server.frontends.rest import errors, v2_paths
from server.frontends.rest.dispatch.router import Route
from server.frontends.rest.transport.responses import JSON, Headers, Response, get_header
from server.parsing.request_parser import RequestParser
from server.request import RequestContext
from server.servables import pending
from server.servables.pending import Pending
from server.servables.servable import Array
from tpuserve.errors import InvalidInput, InvalidJson
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature

JSON_SIZE_HEADER = b"inference-header-content-length"
"""The header that has the size of the JSON in bytes if binary data follow the JSON."""


class InferResult(NamedTuple):
    """The encoded result of an infer request.

    Attributes:
      json_bytes: The size in bytes of the JSON with which the body begins. None if the whole body
        is JSON.
      memory: The reservation for a large body in the memory budget. None for a small body, which
        reserves nothing.
    """

    body: JsonText
    json_bytes: int | None
    version: int
    signature_name: str
    memory: MemoryReservation | None


def split_body(headers: Headers, body: bytes) -> tuple[bytes, memoryview]:
    """Split the body of an infer request into its JSON and its binary data.

    The header Inference-Header-Content-Length has the size of the JSON. Without this header, the
    whole body is JSON.
    """
    value = get_header(headers, JSON_SIZE_HEADER)
    if value is None:
        return body, memoryview(b"")
    # Limit the number of digits, because `int` would take long to convert a long text.
    num_bytes = int(value) if value.isdigit() and len(value) <= 19 else -1
    if not 0 <= num_bytes <= len(body):
        shown = value[:32].decode("latin-1")
        raise InvalidInput(
            f"Inference-Header-Content-Length is {shown!r}, and the body has {len(body)} bytes. "
            f"Send the size of the JSON with which the body begins, in bytes."
        )
    return body[:num_bytes], memoryview(body)[num_bytes:]


def parse_body(
    parser: RequestParser, context: RequestContext, headers: Headers, body: bytes
) -> tuple[RequestContext, InferRequest, memoryview]:
    """Parse the body of an infer request: JSON and optional binary data."""
    text, binary = split_body(headers, body)
    request = parser.parse_infer_request(text, context)
    return limit_time(context, request.timeout_us), request, binary


def run_model(
    dataplane: DataPlane,
    context: RequestContext,
    spec: ModelSpec,
    request: InferRequest,
    binary: memoryview,
    budget: MemoryBudget,
) -> InferResult | Pending[InferResult]:
    """Run a model on an infer request, and return the encoded result.

    If the request waits for a batch, the function returns a Pending, which has the result later.

    Args:
      budget: The memory budget of the server. The outputs reserve memory in it while they are
        encoded. The encoded body reserves memory until it is sent.
    """

    def read_inputs(signature: Signature) -> Mapping[str, Array]:
        return request.read_inputs(signature, binary, context.reserve)

    prediction = dataplane.start_predict(context, spec, read_inputs, list(request.outputs))
    return pending.transform(prediction, lambda outputs: _encode(outputs, request, budget))


def _encode(prediction: Prediction, request: InferRequest, budget: MemoryBudget) -> InferResult:
    outputs = prediction.outputs
    if request.outputs:
        outputs = {name: outputs[name] for name in request.outputs}
    with budget.reserve() as memory:
        output_memory.reserve_for_json(
            {name: array for name, array in outputs.items() if not request.is_binary(name)},
            memory.grow,
        )
        output_memory.reserve_for_message(
            {name: array for name, array in outputs.items() if request.is_binary(name)},
            memory.grow,
        )
        body, json_bytes = encode_infer_response(
            prediction.model, prediction.version, request.request_id, outputs, request.is_binary
        )
    reservation = output_memory.reserve_for_body(body, budget)
    return InferResult(body, json_bytes, prediction.version, prediction.signature_name, reservation)


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
        return v2_paths.parse_path(method, path)

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
            context, request, binary = parse_body(self._parser, context, headers, body)
            signature = request.signature_name or DEFAULT_SIGNATURE
            result = run_model(
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
        headers = ((JSON_SIZE_HEADER, b"%d" % result.json_bytes),)
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
