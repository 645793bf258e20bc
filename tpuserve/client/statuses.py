"""Maps the HTTP and gRPC statuses of a server's error responses to the client's error classes.

INVALID_ARGUMENT, FAILED_PRECONDITION and OUT_OF_RANGE share one error class, because TensorFlow
Serving sends the same HTTP status for all three.
"""

from tpuserve import errors
from tpuserve.errors import Code, TpuserveError

_CLASSES: dict[Code, type[TpuserveError]] = {
    Code.CANCELLED: errors.Cancelled,
    Code.UNKNOWN: errors.ServerFailure,
    Code.INVALID_ARGUMENT: errors.InvalidInput,
    Code.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    Code.NOT_FOUND: errors.NotFound,
    Code.ALREADY_EXISTS: errors.Conflict,
    Code.PERMISSION_DENIED: errors.PermissionDenied,
    Code.RESOURCE_EXHAUSTED: errors.LimitReached,
    Code.FAILED_PRECONDITION: errors.InvalidInput,
    Code.ABORTED: errors.Conflict,
    Code.OUT_OF_RANGE: errors.InvalidInput,
    Code.UNIMPLEMENTED: errors.UnsupportedCall,
    Code.INTERNAL: errors.ServerFailure,
    Code.UNAVAILABLE: errors.Unavailable,
    Code.DATA_LOSS: errors.ServerFailure,
    Code.UNAUTHENTICATED: errors.Unauthenticated,
}
# HTTP status → canonical gRPC status code. The source is TensorFlow Serving's
# tensorflow_serving/model_servers/http_rest_api_util.cc.
_HTTP_CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.UNIMPLEMENTED,
    408: Code.DEADLINE_EXCEEDED,
    409: Code.ABORTED,
    413: Code.RESOURCE_EXHAUSTED,
    429: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    501: Code.UNIMPLEMENTED,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}


def error_of_code(code: Code, message: str) -> TpuserveError:
    """Create the error for a canonical gRPC status code."""
    return _CLASSES[code](message)


def code_of_http_status(status: int) -> Code:
    """Return the canonical gRPC status code for an HTTP status of 300 or more."""
    default = Code.INVALID_ARGUMENT if 400 <= status < 500 else Code.UNKNOWN
    return _HTTP_CODES.get(status, default)
