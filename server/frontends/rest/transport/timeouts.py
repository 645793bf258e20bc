"""The time limits for slow clients, which would otherwise exhaust the server's connections."""

from dataclasses import dataclass

from server.admission.admission import UNREAD_RESPONSE_SECONDS


@dataclass(frozen=True)
class ConnectionTimeouts:
    """The timeouts of a connection, and the size limit for the head of each request.

    Attributes:
      headers_seconds: The longest time for the head of a request, measured from its first byte; for
        the first request, from the start of the connection.
      idle_seconds: The longest time in which no byte of a request body arrives, or in which the
        client reads no byte of a response.
      body_seconds: The longest time until a request body has arrived completely, measured from the
        first byte of the request.
      max_header_bytes: The largest size of the head of a request in bytes.
    """

    headers_seconds: float = 20
    idle_seconds: float = UNREAD_RESPONSE_SECONDS
    body_seconds: float = 600
    max_header_bytes: int = 64 << 10
