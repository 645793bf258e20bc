"""Builds a server out of its parts, runs it and stops it."""

import logging
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from server import logs, ports
from server.dataplane import DataPlane
from server.manager import Manager
from server.repository import Repository
from server.servable import Load, Model
from server.settings import Settings
from server.signals import StopSignals
from tpuserve.errors import Unavailable

# How long requests in flight may take after a signal: less than the 30 seconds that Kubernetes
# grants, so that the models are closed in time too.
GRACE_SECONDS = 25

logger = logging.getLogger(__name__)


class Face(Protocol):
    """REST or gRPC: what answers from a data plane."""

    def start(self) -> None:
        """Begins to accept; OSError or RuntimeError where the port is taken."""

    def stop(self) -> None:
        """Stops accepting, and lets the requests in flight finish meanwhile."""

    def join(self) -> None:
        """Waits until the last request is answered, after `stop`."""


class Server:
    """A repository, the manager of its models, a data plane and the faces of it."""

    def __init__(
        self,
        settings: Settings,
        load: Load,
        on_failure: Callable[[str], None],
        grace_seconds: int = GRACE_SECONDS,
    ) -> None:
        """Takes what to serve and how to load it.

        Args:
          on_failure: called with the reason, from any thread, should a face end by itself.
          grace_seconds: how long requests in flight may take once `stop` is called.
        """
        self._grace_seconds = grace_seconds
        self._settings = settings
        self._on_failure = on_failure
        self._manager = Manager(load)
        self._dataplane = DataPlane(self._manager)
        self._faces: list[Face] = []

    def start(self, before_serving: Callable[[], None] = lambda: None) -> None:
        """Takes the ports, loads the model, and only then begins to answer.

        Args:
          before_serving: called between the two.

        Raises:
          PortInUse, InvalidSetting: a port that cannot be listened on.
          BasePathNotFound, VersionNotFound: there is no model to serve.
          TpuserveError: the model cannot be loaded.
        """
        settings = self._settings
        with ExitStack() as on_error:
            rest = _reserve(on_error, settings.host, settings.rest_api_port, "--rest_api_port")
            rpc = _reserve(on_error, settings.host, settings.port, "--port")
            self._load_model()
            before_serving()
            if rpc is not None:
                self._start_rpc(rpc)
            if rest is not None:
                self._start_rest(rest)
            on_error.pop_all()

    def stop(self) -> bool:
        """Stops accepting, answers what is in flight, and closes the models.

        Returns:
          Whether all is closed: False where a request outlasts the grace period.
        """
        for face in self._faces:
            face.stop()
        for face in self._faces:
            face.join()
        return self._manager.close(timeout_seconds=1)

    def _load_model(self) -> None:
        name = self._settings.model_name
        self._manager.aspire(name, Repository(self._settings.model_base_path).aspired())
        for status in self._manager.status(name):
            if status.error is not None:
                raise status.error

    def _start_rpc(self, reserved: socket.socket) -> None:
        # Imported here: the protos bring TensorFlow, for which nobody waits who has no gRPC.
        from server.rpc.server import RpcServer

        settings = self._settings
        face = RpcServer(self._dataplane, settings.host, settings.port, self._grace_seconds)
        # gRPC binds by itself, and may as long as nobody listens; then the place is kept by it.
        with reserved:
            self._start_face(face, settings.port, "--port")
        logger.info("gRPC on %s:%d", settings.host, settings.port)

    def _start_rest(self, reserved: socket.socket) -> None:
        from server.rest.app import build
        from server.rest.server import RestServer

        settings = self._settings
        app = build(self._dataplane)
        face = RestServer(app, reserved, self._grace_seconds, self._on_failure)
        self._start_face(face, settings.rest_api_port, "--rest_api_port")
        path = f"/v1/models/{quote(settings.model_name, safe='')}"
        logger.info("REST API on http://%s:%d%s", settings.host, settings.rest_api_port, path)

    def _start_face(self, face: Face, port: int, flag: str) -> None:
        try:
            face.start()
        except (OSError, RuntimeError) as error:
            raise ports.in_use(self._settings.host, port, flag) from error
        self._faces.append(face)


def run(settings: Settings, load: Load | None = None, grace_seconds: int = GRACE_SECONDS) -> None:
    """Serves until a signal says to stop, and returns once everything is closed.

    Where a request outlasts the grace period, the process ends without it: with status 0 after a
    signal, and 1 after a failure.

    Args:
      load: turns a version's directory into a model; None loads SavedModels.
      grace_seconds: how long requests in flight may take after the signal.

    Raises:
      TpuserveError: the server cannot start, or has failed.
    """
    logs.configure()
    signals = StopSignals()
    signals.install()
    failures: list[str] = []

    def on_failure(reason: str) -> None:
        failures.append(reason)
        signals.request(reason)

    server = Server(settings, load or saved_model_loader(settings), on_failure, grace_seconds)
    try:
        server.start(before_serving=signals.serving)
        logger.info("ready")
        logger.info("%s: finishing the requests in flight", signals.wait())
    finally:
        is_closed = server.stop()
    logger.info("stopped")
    if not is_closed:
        # The threads of those requests would keep the process alive for as long as they like.
        logging.shutdown()
        os._exit(1 if failures else 0)
    if failures:
        raise Unavailable(f"{failures[0]}; the log says why. Start the server again.")


def saved_model_loader(settings: Settings) -> Load:
    """What loads the metagraph that the settings ask for, on the hardware of this machine."""

    def load(directory: Path) -> Model:
        # Imported here because it brings TensorFlow, which a server that cannot start does
        # without.
        from tpuserve import devices, quiet

        quiet.import_tensorflow()
        from tpuserve import loader

        hardware = devices.find_hardware()
        return loader.load(directory, settings.saved_model_tags, hardware)

    return load


def _reserve(on_error: ExitStack, host: str, port: int, flag: str) -> socket.socket | None:
    return on_error.enter_context(ports.reserve(host, port, flag)) if port else None
