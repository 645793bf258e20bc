"""Errors as HTTP: a status and {"error": "<message>"}."""

import json

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from tpuserve.errors import Code, TpuserveError

# Source: tensorflow_serving/model_servers/http_rest_api_util.cc.
HTTP_STATUS: dict[Code, int] = {
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}


def respond(status: int, message: str) -> Response:
    """An error reply."""
    # Written as ASCII: a message may quote half a surrogate pair that a client sent.
    body = json.dumps({"error": message})
    return Response(body, status, media_type="application/json")


async def on_tpuserve_error(request: Request, error: Exception) -> Response:
    """What was raised on purpose: its message, under the status of its code."""
    assert isinstance(error, TpuserveError)
    return respond(HTTP_STATUS[error.code], str(error))


async def on_no_route(request: Request, error: Exception) -> Response:
    """A method and path that no route has."""
    assert isinstance(error, HTTPException)
    query = request.scope["query_string"].decode("latin-1")
    path = request.scope["path"] + (f"?{query}" if query else "")
    if not path.lower().startswith("/v1/"):
        return respond(404, f"Not Found: {path}")
    return respond(400, f"Malformed request: {request.method} {path}")


async def on_unexpected_error(request: Request, error: Exception) -> Response:
    """A fault of the server; what it is stands in the log alone."""
    return respond(500, "Internal error, see the server's log")
