"""Builds a server out of its parts, runs it and stops it."""

import importlib
import logging
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from server import logs, memory, ports
from server.auth import ApiKeys
from server.catalogue import Catalogue
from server.config import model_file, monitoring, text_file, tls
from server.config.models import ModelConfig, ModelServerConfig
from server.dataplane import DataPlane
from server.limits import Limits
from server.loading import MakeRunner, Retries, WarmUp
from server.manager import Manager
from server.metrics import Metrics
from server.polling import Poller, Source
from server.repository import Repository
from server.request_log import RequestLog
from server.saved_models import SavedModels
from server.servable import Load, Model
from server.settings import Settings
from server.signals import StopSignals
from tpuserve import garbage, quiet
from tpuserve.errors import TpuserveError, Unavailable

if TYPE_CHECKING:
    from server.platform_config import Platform

# What is left to be done once no request is in flight.
_LAST_SECONDS = 1

# A load runs Python for long. At the usual 5 ms a turn, requests wait for it again and again.
_SWITCH_SECONDS = 0.0005

logger = logging.getLogger(__name__)


class Face(Protocol):
    """REST or gRPC: what answers from a data plane."""

    def start(self) -> None:
        """Begins to accept; OSError or RuntimeError where the port is taken."""

    def drain(self) -> None:
        """Says that nothing is served any more to who asks for it, while it still accepts."""

    def stop(self) -> None:
        """Stops accepting, and lets the requests in flight finish meanwhile."""

    def join(self) -> None:
        """Waits until the last request is answered, after `stop`."""


class Server:
    """The models, what keeps them up to date, a data plane and the faces of it."""

    def __init__(
        self,
        settings: Settings,
        load: Load,
        on_failure: Callable[[str], None],
        aside: Callable[[Callable[[], None]], None] = lambda work: work(),
        platform: "Platform | None" = None,
    ) -> None:
        """Takes what to serve and how to load it.

        Args:
          platform: how batches and warm-ups are run, in the place of what flags say of it; the
            settings have the rest of it.
          aside: runs the warm-up of a version.
          on_failure: called with the reason, from any thread, should a face end by itself.

        Raises:
          TpuserveError: a file that the settings name cannot be used.
        """
        self._settings = settings
        self._on_failure = on_failure
        self._aside = aside
        self._platform = platform
        self._faces: list[Face] = []
        self._tls = _read_tls(settings.ssl_config_file) if settings.ssl_config_file else None
        self._keys = ApiKeys(Path(settings.api_keys_file)) if settings.api_keys_file else None
        monitoring_file = settings.monitoring_config_file
        self._metrics_path = monitoring.read(Path(monitoring_file)) if monitoring_file else None
        self._metrics = Metrics()
        self._limits = Limits(settings.max_requests_in_flight)
        self._metrics.watch_in_flight(lambda: self._limits.in_flight)
        self._request_log = RequestLog(self._metrics)
        self._close_batching: Callable[[], None] = lambda: None
        self._manager = Manager(
            load,
            make_runner=self._make_runner(),
            warm_up=self._warm_up(),
            retries=Retries(
                settings.max_num_load_retries, settings.load_retry_interval_micros / 1e6
            ),
            load_threads=settings.num_load_threads,
            unload_threads=settings.num_unload_threads,
            after_unload=memory.give_back,
        )
        self._source = Source(self._manager)
        self._catalogue = Catalogue(
            self._manager,
            self._source,
            allow_labels_for_unavailable=settings.allow_version_labels_for_unavailable_models,
            on_config=self._configure_request_log,
        )
        self._dataplane = DataPlane(
            self._manager,
            metrics=self._metrics,
            request_log=self._request_log,
            check_method_names=settings.enable_signature_method_name_check,
            reload=self._catalogue.reload,
            configured=lambda: self._catalogue.config.names(),
        )
        self._config_text = ""
        self._told_of_config = ""
        self._pollers = [
            Poller("base paths", self._source.look, settings.file_system_poll_wait_seconds),
            Poller(
                "model config file",
                self.reload_file,
                settings.model_config_file_poll_wait_seconds if settings.model_config_file else 0,
            ),
        ]

    def start(self, before_serving: Callable[[], None] = lambda: None) -> None:
        """Takes the ports, loads the models, and only then begins to answer.

        Args:
          before_serving: called between the two.

        Raises:
          PortInUse, InvalidSetting: a port that cannot be listened on.
          InvalidConfig: the model config file is wrong.
          BasePathNotFound, VersionNotFound: the only model is not there.
          ModelsNotAvailable: no model can be loaded.
        """
        settings = self._settings
        with ExitStack() as on_error:
            rest = _reserve(on_error, settings.host, settings.rest_api_port, "--rest_api_port")
            rpc = _reserve(on_error, settings.host, settings.port, "--port")
            if settings.model_base_path is not None and not settings.model_config_file:
                # Told before TensorFlow is waited for.
                Repository(settings.model_base_path).aspired()
            self._import_faces()
            self._catalogue.start(self._first_config())
            before_serving()
            if rpc is not None or settings.grpc_socket_path:
                self._start_rpc(rpc)
            if rest is not None:
                self._start_rest(rest)
            on_error.pop_all()
        for each in self._pollers:
            each.start()
        self._limits.serve()

    def stop(self) -> bool:
        """Stops serving, and closes the models.

        Readiness goes first, and new requests are refused while those in flight finish; then no
        connection is accepted any more.

        Returns:
          Whether all is closed: False where a request outlasts the grace period, or a load is
          still under way.
        """
        self._limits.drain()
        for face in self._faces:
            face.drain()
        for each in self._pollers:
            each.stop()
        deadline = time.monotonic() + self._settings.shutdown_grace_seconds
        is_idle = self._limits.wait_until_idle(self._settings.shutdown_grace_seconds)
        for face in self._faces:
            face.stop()
        is_idle = is_idle and all([_join(face, deadline) for face in self._faces])
        self._close_batching()
        self._request_log.close(_LAST_SECONDS)
        return self._manager.close(_LAST_SECONDS if is_idle else 0) and is_idle

    def reload_file(self) -> None:
        """Puts the model config file in force, if it has changed; what is wrong is logged."""
        path = Path(self._settings.model_config_file)
        try:
            text = text_file.read(path)
            if text == self._config_text or model_file.says_nothing(text):
                # A file that is being written is empty at first: that is no wish to unload all.
                self._told_of_config = ""
                return
            self._catalogue.reload(model_file.parse(text, path), wait=False)
        except TpuserveError as error:
            # Tried again the next time: what is missing may have come by then. Told once.
            if str(error) != self._told_of_config:
                logger.error("%s is not in force: %s", path, error)
            self._told_of_config = str(error)
        else:
            self._config_text, self._told_of_config = text, ""
            logger.info("%s has changed, and is in force", path)

    def _first_config(self) -> ModelServerConfig:
        settings = self._settings
        if not settings.model_config_file:
            path = str(settings.model_base_path)
            return ModelServerConfig((ModelConfig(settings.model_name, path),))
        self._config_text = text_file.read(Path(settings.model_config_file))
        return model_file.parse(self._config_text, Path(settings.model_config_file))

    def _configure_request_log(self, config: ModelServerConfig) -> None:
        self._request_log.configure(
            {each.name: each.logging for each in config.models if each.logging is not None}
        )

    def _make_runner(self) -> MakeRunner:
        settings = self._settings
        if not settings.enable_batching:
            # Nothing stands between a request and its model.
            return lambda model, directory, name: model
        from server.batching import parameters
        from server.batching.runner import BatchingRunners

        file = settings.batching_parameters_file
        found = self._platform.batching if self._platform is not None else None
        if found is None:
            found = parameters.read(Path(file)) if file else parameters.BatchingParameters()
        runners = BatchingRunners(
            found,
            metrics=self._metrics,
            per_model=settings.enable_per_model_batching_parameters,
        )
        self._close_batching = runners.close
        return runners.wrap

    def _warm_up(self) -> WarmUp | None:
        settings = self._settings
        if not settings.enable_model_warmup:
            return None
        from server.warmup import WarmUp as Records

        threads = self._platform.warm_up_threads if self._platform is not None else 1

        def warm_up(model: Model, directory: Path) -> None:
            records = Records(
                settings.num_request_iterations_for_warmup or _cores_to_warm(model),
                self._metrics,
                threads=threads,
                check_method_names=settings.enable_signature_method_name_check,
            )
            self._aside(lambda: records(model, directory))

        return warm_up

    def _import_faces(self) -> None:
        """Imports what they need, so that nobody waits for it when there are models.

        The collector then need not look through the modules, and must through the models.
        """
        settings = self._settings
        names = []
        logger.info("starting: TensorFlow is imported, which takes some seconds")
        if settings.port or settings.grpc_socket_path:
            # The protos bring TensorFlow, for which a server without gRPC waits later.
            quiet.import_tensorflow()
            names += ["server.rpc.server", "server.warmup.records"]
        if settings.rest_api_port:
            names += ["server.rest.app", "server.rest.server"]
        with garbage.uncollected():
            for name in names:
                importlib.import_module(name)

    def _start_rpc(self, reserved: socket.socket | None) -> None:
        from server.rpc.server import RpcServer

        settings = self._settings
        face = RpcServer(
            self._dataplane,
            settings.host,
            settings.port,
            settings.shutdown_grace_seconds,
            settings,
            tls=self._tls,
            keys=self._keys,
            limits=self._limits,
            metrics=self._metrics,
        )
        # gRPC binds by itself, and may as long as nobody listens; then the place is kept by it.
        with reserved or nullcontext():
            self._start_face(face, settings.port, "--port")
        if reserved is not None:
            logger.info("gRPC on %s", ports.joined(settings.host, settings.port))
        if settings.grpc_socket_path:
            logger.info("gRPC on unix:%s", settings.grpc_socket_path)

    def _start_rest(self, reserved: socket.socket) -> None:
        from server.rest.app import build
        from server.rest.server import RestServer

        settings = self._settings
        app = build(
            self._dataplane,
            settings,
            metrics=self._metrics,
            keys=self._keys,
            limits=self._limits,
            monitoring_path=self._metrics_path,
        )
        grace_seconds = math.ceil(settings.shutdown_grace_seconds)
        face = RestServer(app, reserved, grace_seconds, self._on_failure, tls=self._tls)
        self._start_face(face, settings.rest_api_port, "--rest_api_port")
        scheme = "https" if self._tls is not None else "http"
        address = f"{scheme}://{ports.joined(settings.host, settings.rest_api_port)}"
        for name in self._catalogue.config.names():
            logger.info("REST API on %s/v1/models/%s", address, quote(name, safe=""))

    def _start_face(self, face: Face, port: int, flag: str) -> None:
        try:
            face.start()
        except (OSError, RuntimeError) as error:
            path = self._settings.grpc_socket_path
            # gRPC tells which of its addresses it was in its text alone.
            if path and f"unix:{path}" in str(error):
                raise ports.no_socket(path, "--grpc_socket_path") from error
            raise ports.in_use(self._settings.host, port, flag) from error
        self._faces.append(face)


def run(
    settings: Settings,
    load: Load | None = None,
    ignored: Sequence[str] = (),
    signals: StopSignals | None = None,
) -> None:
    """Serves until a signal says to stop, and returns once everything is closed.

    Where a request outlasts the grace period, the process ends without it: with status 0 after a
    signal, and 1 after a failure.

    Args:
      load: turns a version's directory into a model; None loads SavedModels.
      ignored: flags that were given and have no effect, which the log is to say.
      signals: those that are listened to already; None to begin with it here.

    Raises:
      TpuserveError: the server cannot start, or has failed.
    """
    logs.configure()
    memory.be_returnable()
    sys.setswitchinterval(_SWITCH_SECONDS)
    if signals is None:
        signals = StopSignals()
        signals.install()
    stop, serving = signals.request, signals.serving
    failures: list[str] = []

    def on_failure(reason: str) -> None:
        failures.append(reason)
        stop(reason)

    if ignored:
        logger.warning("without effect here: %s", ", ".join(f"--{name}" for name in ignored))
    settings, platform = _with_platform(settings)
    if settings.mixed_precision not in ("", "bfloat16"):
        logger.warning("--mixed_precision=%s: only bfloat16 is known", settings.mixed_precision)
    saved_models = SavedModels(settings, platform.session_config if platform else b"")
    server = Server(settings, load or saved_models, on_failure, saved_models.aside, platform)
    is_closed = False

    def before_serving() -> None:
        serving()
        saved_models.serving()

    try:
        server.start(before_serving)
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


def _with_platform(settings: Settings) -> "tuple[Settings, Platform | None]":
    """The settings as the platform config file has them, and the file; it tells what is in vain."""
    file = settings.platform_config_file
    if not file:
        return settings, None
    from server import platform_config

    found = platform_config.read(Path(file))
    if found.without_effect:
        logger.warning("%s: without effect here: %s", file, ", ".join(found.without_effect))
    replaced = found.replaced(settings)
    if replaced:
        names = ", ".join(f"--{name}" for name in replaced)
        logger.warning("--platform_config_file is in the place of %s", names)
    return found.in_force(settings), found


def _read_tls(path: str) -> tls.Tls:
    from server.rest import tls as rest_tls

    found = tls.read(Path(path))
    # Told before a model is loaded; and gRPC would not say what is wrong with its keys.
    rest_tls.context(found)
    return found


def _join(face: Face, deadline: float) -> bool:
    """Whether a face has answered its last request in time."""
    # It may wait for a client that is slow to send what is not yet a request.
    joining = threading.Thread(target=face.join, name="join", daemon=True)
    joining.start()
    joining.join(max(0, deadline - time.monotonic()) + _LAST_SECONDS)
    return not joining.is_alive()


def _cores_to_warm(model: Model) -> int:
    """How often a request is run so that each core of a real TPU has run it."""
    if getattr(model.choice, "device", "CPU") != "TPU":
        return 1
    from tpuserve import devices

    hardware = devices.find_hardware()
    return max(1, hardware.tpu_cores // max(1, hardware.hosts))


def _reserve(on_error: ExitStack, host: str, port: int, flag: str) -> socket.socket | None:
    return on_error.enter_context(ports.reserve(host, port, flag)) if port else None
