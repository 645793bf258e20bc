"""Limits for slow clients. Without them such clients exhaust the server's connections."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ConnectionTimeouts:
    """The timeouts, and the size limit of the head, for the requests of one connection.

    Attributes:
      headers_seconds: The longest time for the head of a request, from its first byte or from
        the start of the connection.
      idle_seconds: The longest time in which no byte of a body arrives, or in which the client
        takes no byte of a response.
      body_seconds: The longest time for a whole body.
      max_header_bytes: The largest size of the head of a request.
    """

    headers_seconds: float = 20
    idle_seconds: float = 20
    body_seconds: float = 600
    max_header_bytes: int = 64 << 10
