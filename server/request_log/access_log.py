"""A line of JSON for each request, over whichever protocol it came."""

import logging
from datetime import datetime, timezone
from typing import Any

import orjson

logger = logging.getLogger("server.access")


class AccessLog:
    """Writes the lines; one for all faces of a server, from any thread."""

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
    ) -> None:
        """Writes down one request that is answered, or whose client has gone.

        Args:
          protocol: "REST" or "gRPC".
          method: of HTTP, "POST"; of gRPC its full name, "/tensorflow.serving.ModelService/...".
          path: with its query string, as it was sent; gRPC has none.
          model, signature: empty where the request names none, or was not read as far.
          version: that has answered, else the one that was asked for; None for neither.
          status: the number over REST, 0 where the client has gone; the name of the canonical
            code over gRPC, "OK".
          duration_ms: from the first sight of the request to the end of its answer.
          peer: the address of the client.
          bytes_in, bytes_out: of the bodies, or messages, as sent over the wire.
        """
        line = {
            "time": datetime.now(timezone.utc),
            "protocol": protocol,
            "peer": peer,
            "method": method,
            "path": path,
            "model": model,
            "version": version,
            "signature": signature,
            "status": status,
            "duration_ms": round(duration_ms, 3),
            "bytes_in": bytes_in,
            "bytes_out": bytes_out,
        }
        logger.info(_dump(line).decode())


def _dump(line: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(line)
    except TypeError:
        # Half of a surrogate pair, in a name that a client has sent.
        return orjson.dumps({key: _shown(value) for key, value in line.items()})


def _shown(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
