"""Sends spans to a collector, in a thread of its own."""

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from urllib.parse import urlsplit

import grpc
from opentelemetry.util.re import parse_env_headers

_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_DEFAULT_PORT = 4317
# Spans are sent after this number of requests, or after this number of seconds.
_BATCH_SIZE, _BATCH_SECONDS = 256, 1.0
# The number of requests whose spans may wait. Further requests have no spans, so that a collector
# that is slow or absent does not fill the memory.
_MAX_WAITING = 16 * _BATCH_SIZE
# How long a batch may take, in seconds, including the repetitions of a failed call.
_EXPORT_SECONDS = 10.0
# The interval between two log lines about failures, in seconds.
_LOG_SECONDS = 60.0
# gRPC itself repeats calls that fail for a reason that may pass. Source:
# https://opentelemetry.io/docs/specs/otlp/#failures.
_SERVICE_CONFIG = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 5,
                    "initialBackoff": "0.5s",
                    "maxBackoff": "4s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE", "ABORTED", "OUT_OF_RANGE"],
                },
            }
        ]
    }
)

Item = TypeVar("Item")

logger = logging.getLogger(__name__)


class Exporter(Generic[Item]):
    """Collects items, and sends them to an OTLP receiver over gRPC, several at a time.

    OpenTelemetry's own exporter is not used: it takes several times as much processor time for a
    span, and would slow small models down by a fifth.
    """

    def __init__(self, endpoint: str, encode: Callable[[Sequence[Item]], bytes]) -> None:
        """Start the thread that sends.

        Args:
          endpoint: the URL of the receiver; its scheme says whether the connection uses TLS.
          encode: returns a serialised ExportTraceServiceRequest; called in the thread.
        """
        self._endpoint = endpoint
        self._encode = encode
        self._items: deque[Item] = deque()
        self._num_dropped = 0
        self._last_log: float | None = None
        self._wake = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def add(self, item: Item) -> None:
        """Send an item later; drop it if too many items wait."""
        waiting = len(self._items)
        if waiting >= _MAX_WAITING:
            self._num_dropped += 1
            return
        self._items.append(item)
        if waiting + 1 == _BATCH_SIZE:
            self._wake.set()

    def close(self, timeout_seconds: float) -> None:
        """Send the items that wait, and end the thread.

        Args:
          timeout_seconds: the longest time to wait for the end of the thread, in seconds.
        """
        self._is_closed = True
        self._wake.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        # The channel is created here and not in __init__, because the thread alone uses it.
        url = urlsplit(self._endpoint)
        address = f"{url.hostname}:{url.port or _DEFAULT_PORT}"
        options = [("grpc.service_config", _SERVICE_CONFIG)]
        if url.scheme == "https":
            channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(), options)
        else:
            channel = grpc.insecure_channel(address, options)
        headers = os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
        metadata = tuple(parse_env_headers(headers, liberal=True).items())
        with channel:
            send = channel.unary_unary(_METHOD)
            is_last = False
            while not is_last:
                self._wake.wait(_BATCH_SECONDS)
                self._wake.clear()
                # Check for the end before the items are sent, not after it: so all items that were
                # added before `close` are sent.
                is_last = self._is_closed
                while self._items:
                    self._send_batch(lambda batch: send(batch, _EXPORT_SECONDS, metadata))

    def _send_batch(self, send: Callable[[bytes], object]) -> None:
        count = min(len(self._items), _BATCH_SIZE)
        batch = [self._items.popleft() for _ in range(count)]
        try:
            send(self._encode(batch))
        except grpc.RpcError as error:
            self._num_dropped += count
            self._log_failure(f"{error.code().name}: {error.details()}")
        except Exception:
            # The thread must live on to send later spans.
            logger.exception("spans cannot be encoded")
        if self._num_dropped:
            self._log_failure("the collector does not keep up")

    def _log_failure(self, reason: str) -> None:
        """Log how many requests lost their spans, at most once in `_LOG_SECONDS`."""
        now = time.monotonic()
        if self._last_log is not None and now - self._last_log < _LOG_SECONDS:
            return
        logger.warning(
            "the spans of %d requests were not exported to %s: %s",
            self._num_dropped,
            self._endpoint,
            reason,
        )
        self._last_log, self._num_dropped = now, 0
