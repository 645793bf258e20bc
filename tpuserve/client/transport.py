"""Defines the settings of a connection to a server, and creates the errors of failed calls."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tpuserve import errors
from tpuserve.client.address import Address
from tpuserve.errors import (
    Code,
    InvalidReply,
    InvalidSetting,
    LimitReached,
    ServerUnreachable,
    TpuserveError,
    Unavailable,
)

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
    error = _CLASSES[code](message)
    # Several codes share a class.
    error.code = code
    return error


def code_of_http_status(status: int) -> Code:
    """Return the canonical gRPC status code for an HTTP status of 300 or more."""
    default = Code.INVALID_ARGUMENT if 400 <= status < 500 else Code.UNKNOWN
    return _HTTP_CODES.get(status, default)


DEFAULT_MAX_REPLY_BYTES = 1 << 30

_MAX_SHOWN_CHARACTERS = 200
_TOO_LARGE = 413


@dataclass(frozen=True)
class ConnectionSettings:
    """The settings of a connection to a server.

    Attributes:
      api_key: the key that is sent as a bearer token; "" for none.
      ca_file: a PEM file with the certificates that a server's certificate is checked with; None
        for the certificates of the system.
    """

    address: Address
    api_key: str = ""
    ca_file: str | None = None
    max_reply_bytes: int = DEFAULT_MAX_REPLY_BYTES

    def __post_init__(self) -> None:
        if self.max_reply_bytes < 1:
            raise InvalidSetting(
                f"max_reply_bytes is {self.max_reply_bytes}. Give 1 or more; the default is "
                f"{DEFAULT_MAX_REPLY_BYTES}."
            )

    def authorization(self) -> dict[str, str]:
        """Return the HTTP headers, or the gRPC metadata, with the API key; {} without a key."""
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def read_ca_file(self) -> bytes | None:
        """Return the content of the CA file; None if no CA file is given."""
        if self.ca_file is None:
            return None
        try:
            return Path(self.ca_file).read_bytes()
        except OSError as error:
            raise InvalidSetting(
                f"ca_file is {self.ca_file!r}, which cannot be read ({error.strerror}). Give a PEM "
                f"file with certificates."
            ) from error

    def unreachable_error(self, reason: object) -> ServerUnreachable:
        """Create the error for a server that does not answer."""
        text = " ".join(str(reason).split())[:_MAX_SHOWN_CHARACTERS]
        return ServerUnreachable(
            f"no server answers at {self.address.url}: {text or 'the connection broke'}. Start it "
            f"with `tpuserve serve`, or give the URL of a server that runs."
        )


def too_large_error(max_bytes: int) -> InvalidReply:
    """Create the error for a reply of more than max_bytes bytes."""
    return InvalidReply(
        f"the server's answer has more than {max_bytes} bytes. Request fewer rows or outputs, or "
        f"give a larger max_reply_bytes."
    )


def http_error(status: int, headers: Mapping[str, str], body: bytes) -> TpuserveError:
    """Create the error for a response with an HTTP status of 300 or more."""
    error = error_of_code(code_of_http_status(status), _http_message(status, body))
    if isinstance(error, Unavailable | LimitReached) and status != _TOO_LARGE:
        error.retry_after_s = _seconds(headers.get("retry-after", ""))
    return error


def grpc_error(connection: ConnectionSettings, number: int, details: str) -> TpuserveError:
    """Create the error for a gRPC status that is not OK."""
    code = Code(number)
    if code is Code.UNAVAILABLE and _is_local(details):
        return connection.unreachable_error(details)
    if "CLIENT: Received message larger than max" in details:
        return too_large_error(connection.max_reply_bytes)
    error = error_of_code(code, details or code.name)
    if isinstance(error, LimitReached):
        error.retry_after_s = 0.0
    return error


def _http_message(status: int, body: bytes) -> str:
    try:
        message: Any = orjson.loads(body)["error"]
    except (ValueError, KeyError, TypeError, IndexError):
        message = None
    if isinstance(message, str) and message:
        return message
    text = " ".join(body[:_MAX_SHOWN_CHARACTERS].decode("utf-8", "replace").split())
    return f"HTTP status {status}: {text or 'an empty body'}"


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _is_local(details: str) -> bool:
    """Return whether the client's gRPC library wrote the message of an UNAVAILABLE status."""
    texts = ("failed to connect", "dns resolution failed", "socket closed", "connection reset")
    return any(text in details.lower() for text in texts)
