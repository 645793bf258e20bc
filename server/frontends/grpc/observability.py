"""The books that are kept of requests: counted in metrics, written down in the access log."""

import time
from urllib.parse import unquote

import grpc

from server.frontends.grpc.services.call_context import CallContext
from server.metrics import Metrics
from server.request_log.access_log import AccessLog

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"

_PROTOCOL = "gRPC"
_ENTRYPOINT = "GRPC"
# TensorFlow Serving counts these alone.
_COUNTED = {f"/{PREDICTION_SERVICE}/{api}": api for api in ("Predict", "Classify", "Regress")}


class CallObserver:
    """Where requests are noted down once they have ended, well or not.

    A request that fails before it says which model it is for is counted for a model without a
    name.
    """

    def __init__(self, metrics: Metrics | None = None, log: AccessLog | None = None) -> None:
        """Takes where to count, and where to write; None for nowhere that anybody sees."""
        self._metrics = Metrics() if metrics is None else metrics
        self._log = log

    def record(
        self,
        method: str,
        request: CallContext,
        status: str,
        started_ns: int,
        context: grpc.ServicerContext,
        bytes_in: int = 0,
        bytes_out: int = 0,
    ) -> None:
        """Notes down a request that has just ended.

        Args:
          method: its full name.
          status: the name of a canonical code.
          started_ns: as of `time.perf_counter_ns`.
        """
        taken_ns = time.perf_counter_ns() - started_ns
        api = _COUNTED.get(method)
        target = request.target
        if api is not None:
            self._metrics.request_done(target.model, api, _ENTRYPOINT, status, taken_ns // 1000)
        if self._log is not None:
            self._log.write(
                _PROTOCOL,
                method,
                model=target.model,
                version=target.version if request.version is None else request.version,
                signature=target.signature_name,
                status=status,
                duration_ms=taken_ns / 1e6,
                peer=_address(context.peer()),
                bytes_in=bytes_in,
                bytes_out=bytes_out,
            )


def _address(peer: str) -> str:
    """The address alone, out of "ipv4:127.0.0.1:4000" and "ipv6:%5B::1%5D:4000"."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    # A socket of both kinds shows addresses of IPv4 as ones of IPv6.
    return unquote(rest).rpartition(":")[0].strip("[]").removeprefix("::ffff:")
