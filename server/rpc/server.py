"""The gRPC face as something to start and stop."""

import logging
import os
import threading
from concurrent import futures

import grpc
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from server.dataplane import DataPlane
from server.rpc.models import ModelService
from server.rpc.predict import PredictionService

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # With it, two servers on one port would share the clients between them, unnoticed.
    ("grpc.so_reuseport", 0),
]

logger = logging.getLogger(__name__)


class RpcServer:
    """Serves a data plane on a port.

    Attributes:
      address: where, "127.0.0.1:8500".
    """

    def __init__(self, dataplane: DataPlane, host: str, port: int, grace_seconds: int) -> None:
        """Takes what to serve and where.

        Args:
          grace_seconds: how long requests in flight may take once `stop` is called.
        """
        self.address = f"{host}:{port}"
        self._grace_seconds = grace_seconds
        self._stopped: threading.Event | None = None
        # Few threads: a call runs its model in its own thread, and more of them than cores only
        # take turns.
        pool = futures.ThreadPoolExecutor(max(4, os.cpu_count() or 0), thread_name_prefix="grpc")
        self._server = grpc.server(pool, options=_OPTIONS)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            PredictionService(dataplane), self._server
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            ModelService(dataplane), self._server
        )

    def start(self) -> None:
        """Begins to accept.

        Raises:
          RuntimeError: the port is taken.
        """
        self._server.add_insecure_port(self.address)
        self._server.start()

    def stop(self) -> None:
        """Stops accepting, and lets the requests in flight finish meanwhile."""
        self._stopped = self._server.stop(self._grace_seconds)

    def join(self) -> None:
        """Waits until the last request is answered, after `stop`."""
        if self._stopped is not None:
            self._stopped.wait()
