"""Converts errors to HTTP responses, which have the body {"error": "<message>"}."""

import logging

from server.codec import responses
from server.frontends.rest.transport.responses import Response
from tpuserve.errors import Code, MemoryBudgetExceeded, RequestTooLarge, ShuttingDown, TpuserveError

logger = logging.getLogger(__name__)

# Canonical status code, as in gRPC → HTTP status. Source:
# tensorflow_serving/model_servers/http_rest_api_util.cc.
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
# Error class → HTTP status, for errors that do not get the HTTP status of their canonical status
# code.
_SPECIAL_STATUS: dict[type[TpuserveError], int] = {
    RequestTooLarge: 413,
    MemoryBudgetExceeded: 503,
}
# The header that asks the client of an overloaded server to wait for a second before it sends the
# request again.
_RETRY_AFTER = (b"retry-after", b"1")
CLOSE = (b"connection", b"close")
"""The header that closes the connection after the response."""
_HEADERS = {
    401: ((b"www-authenticate", b"Bearer"),),
    429: (_RETRY_AFTER,),
    503: (_RETRY_AFTER,),
}


def response_to_error(error: Exception) -> Response:
    """Convert an exception to an error response.

    The message of a TpuserveError becomes the message of the response.
    """
    if isinstance(error, TpuserveError):
        status = _SPECIAL_STATUS.get(type(error)) or HTTP_STATUS[error.code]
        response = error_response(status, str(error), error.code)
        if isinstance(error, ShuttingDown):
            response = response._replace(headers=(*response.headers, CLOSE))
        return response
    logger.error("a request has failed", exc_info=error)
    return error_response(500, "Internal error, see the server's log", Code.INTERNAL)


def error_response(status: int, message: str, code: Code = Code.INVALID_ARGUMENT) -> Response:
    """Build an error response with the body {"error": "<message>"}."""
    body = responses.encode_error(message)
    return Response(status, body, headers=_HEADERS.get(status, ()), code=code.name, error=message)
