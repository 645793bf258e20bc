"""Sends spans to an OpenTelemetry collector, in a separate thread."""

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from urllib.parse import urlsplit

import grpc
from opentelemetry.util.re import parse_env_headers

from server.process import ports
from server.telemetry.receiver import OtlpReceiver

_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_DEFAULT_PORT = 4317
# The spans of queued requests are sent when _BATCH_SIZE requests are queued, or when the exporter
# has waited for _BATCH_SECONDS seconds.
_BATCH_SIZE, _BATCH_SECONDS = 256, 1.0
# The largest number of queued requests. The spans of further requests are discarded, so that the
# queue does not fill the memory if the collector is slow or absent.
_MAX_WAITING = 16 * _BATCH_SIZE
# How many seconds the sending of a batch may take, including the retries of a failed call.
_EXPORT_SECONDS = 10.0
# The shortest time between two log lines about spans that were not sent, in seconds.
_LOG_SECONDS = 60.0
# The gRPC service config with which gRPC retries a call that fails with a transient error. Source:
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


class SpanExporter(Generic[Item]):
    """Queues requests, and sends their spans to an OTLP receiver over gRPC, in batches.

    An item of the queue is the record of one request. The spans of the request are created from it
    when they are sent.

    OpenTelemetry's own exporter takes several times as much processor time for a span, and would
    make requests to small models slower by a fifth.
    """

    def __init__(self, receiver: OtlpReceiver, encode: Callable[[Sequence[Item]], bytes]) -> None:
        """Start the thread that sends the spans.

        Args:
          receiver: the URL of the receiver, and the settings of the connection to it.
          encode: makes the spans of a batch of items, and returns them as a serialised
            ExportTraceServiceRequest. It is called in the exporter's thread.
        """
        self._receiver = receiver
        self._encode = encode
        self._items: deque[Item] = deque()
        self._num_dropped = 0
        self._drop_reason = ""
        self._last_log: float | None = None
        self._wake = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def add(self, item: Item) -> None:
        """Queue an item, whose spans are sent later; discard it if the queue is full."""
        waiting = len(self._items)
        if waiting >= _MAX_WAITING:
            self._drop_reason = "the collector does not keep up"
            self._num_dropped += 1
            return
        self._items.append(item)
        if waiting + 1 == _BATCH_SIZE:
            self._wake.set()

    def close(self, timeout_seconds: float) -> None:
        """Send the spans of the queued items, and end the thread.

        Args:
          timeout_seconds: the longest time to wait for the end of the thread, in seconds.
        """
        self._is_closed = True
        self._wake.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        # Create the channel here and not in __init__, because only this thread uses it.
        receiver = self._receiver
        url = urlsplit(receiver.endpoint)
        address = ports.format_address(url.hostname or "", url.port or _DEFAULT_PORT)
        options = [("grpc.service_config", _SERVICE_CONFIG)]
        if url.scheme == "https":
            credentials = grpc.ssl_channel_credentials(
                receiver.authorities, receiver.key, receiver.certificate
            )
            channel = grpc.secure_channel(address, credentials, options)
        else:
            channel = grpc.insecure_channel(address, options)
        metadata = tuple(parse_env_headers(receiver.headers, liberal=True).items())
        with channel:
            send = channel.unary_unary(_METHOD)
            is_last = False
            while not is_last:
                self._wake.wait(_BATCH_SECONDS)
                self._wake.clear()
                # Read `_is_closed` before the items are sent, not afterwards, so that all items
                # that were added before `close` are sent.
                is_last = self._is_closed
                while self._items:
                    self._send_batch(lambda batch: send(batch, _EXPORT_SECONDS, metadata))

    def _send_batch(self, send: Callable[[bytes], object]) -> None:
        count = min(len(self._items), _BATCH_SIZE)
        batch = [self._items.popleft() for _ in range(count)]
        try:
            send(self._encode(batch))
        except grpc.RpcError as error:
            self._drop_reason = f"{error.code().name}: {error.details()}"
            self._num_dropped += count
        except Exception:
            # Log the exception and continue, because the thread must send later spans.
            logger.exception("spans cannot be encoded")
        if self._num_dropped:
            self._log_dropped()

    def _log_dropped(self) -> None:
        """Log how many requests have spans that were not exported, and the latest reason.

        At most one line is logged in `_LOG_SECONDS` seconds. The line counts the requests since the
        previous line.
        """
        now = time.monotonic()
        if self._last_log is not None and now - self._last_log < _LOG_SECONDS:
            return
        logger.warning(
            "the spans of %d requests were not exported to %s: %s",
            self._num_dropped,
            self._receiver.endpoint,
            self._drop_reason,
        )
        self._last_log, self._num_dropped = now, 0
