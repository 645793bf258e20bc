"""The time limits for slow clients, which would otherwise exhaust the server's connections."""

from dataclasses import dataclass

from server.admission.admission import UNREAD_RESPONSE_SECONDS


@dataclass(frozen=True)
class ConnectionTimeouts:
    """The timeouts of a connection, and the size limit for the head of each request.

    Attributes:
      idle_seconds: The longest time in which no byte of a request body arrives, or in which the
        client reads no byte of a response.
      body_seconds: The longest time until a request body has arrived completely, measured from the
        first byte of the request.
    """

    headers_seconds: float = 20
    idle_seconds: float = UNREAD_RESPONSE_SECONDS
    body_seconds: float = 600
    max_header_bytes: int = 64 << 10
