"""The composition root: builds a server from its parts, runs the server and stops it."""

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from server import runner_factory
from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.config import model_file, monitoring, textproto, tls
from server.config.model_config import ModelConfig, ModelServerConfig
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends import base
from server.frontends.base import LAST_SECONDS, Frontend
from server.metrics import Metrics
from server.models.config_manager import ModelConfigManager
from server.models.file_system_source import FileSystemSource, PeriodicFunction
from server.models.manager import Manager
from server.models.repository import Repository
from server.models.servable_loader import MakeRunner, Retries, WarmUp
from server.process import logs, malloc, ports
from server.process.signals import StopSignals
from server.request_log import RequestLog
from server.servables.saved_model_loader import SavedModelLoader
from server.servables.servable import Load
from tpuserve.errors import TpuserveError, Unavailable

if TYPE_CHECKING:
    from server.config.platform_config import PlatformConfig

# How long a thread keeps Python's GIL while other threads wait for the GIL, in seconds. With
# Python's default of 5 ms, the threads that load a model would delay requests.
_SWITCH_INTERVAL_SECONDS = 0.0005

logger = logging.getLogger(__name__)


class Server:
    """A server: the models, the pollers that update them, a data plane and its frontends."""

    def __init__(
        self,
        settings: Settings,
        load: Load,
        on_failure: Callable[[str], None],
        warm_up_executor: Callable[[Callable[[], None]], None] = lambda work: work(),
        platform: "PlatformConfig | None" = None,
    ) -> None:
        """Create a server that does not listen yet.

        Args:
          settings: the settings, with the platform config file applied.
          load: loads the model in a version's directory.
          on_failure: called with the reason, from any thread, if a frontend ends by itself.
          warm_up_executor: runs the warm-up of a version.
          platform: the batching and warm-up settings of the platform config file; None without
            such a file.

        Raises:
          TpuserveError: a file that the settings name cannot be used.
        """
        self._settings = settings
        self._frontends: list[Frontend] = []
        tls_config = _read_tls(settings.ssl_config_file) if settings.ssl_config_file else None
        keys = ApiKeys(Path(settings.api_keys_file)) if settings.api_keys_file else None
        monitoring_file = settings.monitoring_config_file
        metrics_path = (
            monitoring.read_metrics_path(Path(monitoring_file)) if monitoring_file else None
        )
        self._metrics = Metrics()
        self._admission = AdmissionController(settings.max_requests_in_flight)
        self._metrics.watch_in_flight(lambda: self._admission.in_flight)
        self._request_log = RequestLog(self._metrics)
        make_runner, self._close_batching = runner_factory.make_runner_factory(
            settings, platform, self._metrics
        )
        warm_up = runner_factory.make_warm_up(settings, platform, self._metrics, warm_up_executor)
        self._manager = _create_manager(settings, load, make_runner, warm_up)
        self._source = FileSystemSource(self._manager)
        self._config_manager = ModelConfigManager(
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
            reload=self._config_manager.reload,
            configured=lambda: self._config_manager.config.names(),
        )
        self._frontend_context = base.FrontendContext(
            settings=settings,
            dataplane=self._dataplane,
            metrics=self._metrics,
            admission=self._admission,
            keys=keys,
            tls=tls_config,
            metrics_path=metrics_path,
            on_failure=on_failure,
        )
        self._config_text = ""
        self._last_config_error = ""
        self._pollers = self._create_pollers()

    def start(self, before_serving: Callable[[], None] = lambda: None) -> None:
        """Bind the ports, load the models and then accept connections.

        Args:
          before_serving: called after the models are loaded and before connections are accepted.

        Raises:
          PortInUse: another process listens on a port or a socket.
          InvalidSetting: the server cannot listen on a port or a socket.
          InvalidConfig: the model config file is invalid.
          BasePathNotFound: the server has a single model, whose base path does not exist.
          VersionNotFound: the server has a single model, which has no version.
          ModelsNotAvailable: no model can be loaded.
        """
        settings = self._settings
        with ExitStack() as on_error:
            rest = base.reserve_port(
                on_error, settings.host, settings.rest_api_port, "--rest_api_port"
            )
            grpc = base.reserve_port(on_error, settings.host, settings.port, "--port")
            if settings.grpc_socket_path:
                ports.check_unix_socket_is_free(settings.grpc_socket_path, "--grpc_socket_path")
            if settings.model_base_path is not None and not settings.model_config_file:
                # Raise the error for a model without versions before the slow import of TensorFlow.
                Repository(settings.model_base_path).aspired_versions()
            base.preload_modules(settings)
            self._config_manager.start(self._first_config())
            before_serving()
            if grpc is not None or settings.grpc_socket_path:
                self._frontends.append(base.start_grpc(self._frontend_context, grpc))
            if rest is not None:
                names = self._config_manager.config.names()
                self._frontends.append(base.start_rest(self._frontend_context, rest, names))
            on_error.pop_all()
        for poller in self._pollers:
            poller.start()
        self._admission.mark_ready()

    def stop(self) -> bool:
        """Stop serving and close the models.

        The server first reports that it is not ready and refuses new requests while the requests in
        flight finish. Then it stops accepting connections.

        Returns:
          Whether everything is closed; False if a request outlasts the grace period or a load is
          still in progress.
        """
        self._admission.drain()
        for frontend in self._frontends:
            frontend.drain()
        for poller in self._pollers:
            poller.stop()
        deadline = time.monotonic() + self._settings.shutdown_grace_seconds
        is_idle = self._admission.wait_until_idle(self._settings.shutdown_grace_seconds)
        for frontend in self._frontends:
            frontend.stop()
        is_idle = is_idle and all(
            [base.join_with_deadline(frontend, deadline) for frontend in self._frontends]
        )
        self._close_batching()
        self._request_log.close(LAST_SECONDS)
        return self._manager.close(LAST_SECONDS if is_idle else 0) and is_idle

    def reload_config_file(self) -> None:
        """Apply the model config file if it has changed; log an error if it is invalid."""
        path = Path(self._settings.model_config_file)
        try:
            text = textproto.read_text(path)
            if text == self._config_text or model_file.is_empty(text):
                # Ignore an empty file, which an editor may leave before it writes: an empty
                # configuration would unload every model.
                self._last_config_error = ""
                return
            self._config_manager.reload(model_file.parse_model_config(text, path), wait=False)
        except TpuserveError as error:
            # Each poll applies the file again, because missing files may appear. An error that
            # recurs at every poll is logged once.
            if str(error) != self._last_config_error:
                logger.error(
                    "%s was not applied; still using the previous version: %s", path, error
                )
            self._last_config_error = str(error)
        else:
            self._config_text, self._last_config_error = text, ""
            logger.info("applied the new %s", path)

    def _create_pollers(self) -> list[PeriodicFunction]:
        settings = self._settings
        return [
            PeriodicFunction(
                "base paths", self._source.poll_once, settings.file_system_poll_wait_seconds
            ),
            PeriodicFunction(
                "model config file",
                self.reload_config_file,
                settings.model_config_file_poll_wait_seconds if settings.model_config_file else 0,
            ),
        ]

    def _first_config(self) -> ModelServerConfig:
        settings = self._settings
        if not settings.model_config_file:
            path = str(settings.model_base_path)
            return ModelServerConfig((ModelConfig(settings.model_name, path),))
        self._config_text = textproto.read_text(Path(settings.model_config_file))
        return model_file.parse_model_config(self._config_text, Path(settings.model_config_file))

    def _configure_request_log(self, config: ModelServerConfig) -> None:
        self._request_log.configure(
            {model.name: model.logging for model in config.models if model.logging is not None}
        )


def _create_manager(
    settings: Settings, load: Load, make_runner: MakeRunner, warm_up: WarmUp | None
) -> Manager:
    return Manager(
        load,
        make_runner=make_runner,
        warm_up=warm_up,
        retries=Retries(settings.max_num_load_retries, settings.load_retry_interval_micros / 1e6),
        load_threads=settings.num_load_threads,
        unload_threads=settings.num_unload_threads,
        during_move=malloc.large_tensor_allocation,
        after_unload=malloc.trim_heap,
    )


def run(
    settings: Settings,
    load: Load | None = None,
    ignored: Sequence[str] = (),
    signals: StopSignals | None = None,
) -> None:
    """Serve until a signal arrives, and return once everything is closed.

    If a request outlasts the grace period, the process exits without waiting for the request: with
    status 0 after a signal, and with status 1 after a failure.

    Args:
      settings: the settings of the server.
      load: loads the model in a version's directory; None for the loader of SavedModels.
      ignored: given flags that have no effect; they are logged.
      signals: installed signal handlers; None to install new handlers.

    Raises:
      TpuserveError: the server cannot start, or failed.
    """
    logs.configure_logging()
    malloc.configure_malloc()
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    if signals is None:
        signals = StopSignals()
        signals.install()
    request_stop, mark_serving = signals.request_stop, signals.mark_serving
    failures: list[str] = []

    def on_failure(reason: str) -> None:
        failures.append(reason)
        request_stop(reason)

    if ignored:
        logger.warning("ignored flags: %s", ", ".join(f"--{name}" for name in ignored))
    settings, platform = _apply_platform_config(settings)
    if settings.mixed_precision not in ("", "bfloat16"):
        logger.warning(
            "--mixed_precision=%s is ignored: the only supported value is bfloat16",
            settings.mixed_precision,
        )
    saved_model_loader = SavedModelLoader(settings, platform.session_config if platform else b"")
    server = Server(
        settings, load or saved_model_loader, on_failure, saved_model_loader.executor, platform
    )
    is_closed = False

    def before_serving() -> None:
        mark_serving()
        saved_model_loader.mark_serving()

    try:
        server.start(before_serving)
        logger.info("ready")
        logger.info("%s: finishing the requests in flight", signals.wait())
    finally:
        is_closed = server.stop()
    logger.info("stopped")
    if not is_closed:
        # Exit at once: otherwise the threads of the unfinished requests would keep the process
        # alive.
        logging.shutdown()
        os._exit(1 if failures else 0)
    if failures:
        raise Unavailable(f"{failures[0]}; see the log for the cause. Start the server again.")


def _apply_platform_config(settings: Settings) -> "tuple[Settings, PlatformConfig | None]":
    """Return the settings with the platform config file applied, and the file's content.

    Logs the fields of the file that have no effect, and the flags that the file overrides.
    """
    file = settings.platform_config_file
    if not file:
        return settings, None
    from server.config import platform_config

    platform = platform_config.read_platform_config(Path(file))
    if platform.fields_without_effect:
        logger.warning("%s: ignored fields: %s", file, ", ".join(platform.fields_without_effect))
    overridden_flags = platform.overridden_flags(settings)
    if overridden_flags:
        names = ", ".join(f"--{name}" for name in overridden_flags)
        logger.warning("--platform_config_file overrides %s", names)
    return platform.apply_to(settings), platform


def _read_tls(path: str) -> tls.TlsConfig:
    from server.frontends.rest.transport import tls as rest_tls

    config = tls.read_tls_config(Path(path))
    # Validate the TLS keys here, before a model is loaded: gRPC would refuse an invalid key later,
    # and would not report the reason.
    rest_tls.create_ssl_context(config)
    return config
