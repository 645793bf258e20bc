"""The access log: one line of JSON for each request, whatever its protocol."""

import logging
from datetime import UTC, datetime

from server.process.logs import Line, TraceIds, add_trace

logger = logging.getLogger("server.access")


class AccessLog:
    """Writes the access log of all frontends of a server. Thread-safe."""

    def write(
        self,
        protocol: str,
        method: str,
        *,
        path: str = "",
        model: str = "",
        version: int | None = None,
        signature: str = "",
        status: str | int,
        duration_ms: float,
        peer: str = "",
        bytes_in: int = 0,
        bytes_out: int = 0,
        trace: TraceIds = None,
    ) -> None:
        """Write the line of a request that was answered, or whose client has disconnected.

        Args:
          method: the HTTP method, such as "POST", or the full name of the gRPC method, such as
            "/tensorflow.serving.ModelService/GetModelStatus".
          path: the URL path with the query string, as the client sent it; empty for gRPC.
          model: the model's name; empty if the request names no model, or was refused before the
            server read the name.
          signature: the signature's name; empty if the request names no signature, or was refused
            before the server read the name.
          status: for REST the HTTP status, or 0 if the client has disconnected; for gRPC the name
            of the status code, such as "OK".
          duration_ms: the time from the arrival of the request to the end of its answer, in
            milliseconds.
          bytes_in: the size in bytes of the request body or message, as sent over the network.
          bytes_out: the size in bytes of the response body or message, as sent over the network.
          trace: the IDs of the request's trace and span; None if it is not traced.
        """
        line = Line(
            time=datetime.now(UTC),
            protocol=protocol,
            peer=peer,
            method=method,
            path=path,
            model=model,
            version=version,
            signature=signature,
            status=status,
            duration_ms=round(duration_ms, 3),
            bytes_in=bytes_in,
            bytes_out=bytes_out,
        )
        add_trace(line, trace)
        logger.info(line)
