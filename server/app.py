"""Builds a server out of its parts, runs it and stops it."""

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
from server.models.servable_loader import Retries
from server.process import logs, malloc, ports
from server.process.signals import StopSignals
from server.request_log import RequestLog
from server.servables.saved_model_loader import SavedModelLoader
from server.servables.servable import Load
from tpuserve.errors import TpuserveError, Unavailable

if TYPE_CHECKING:
    from server.config.platform_config import PlatformConfig

# A load runs Python for long. At the usual 5 ms a turn, requests wait for it again and again.
_SWITCH_SECONDS = 0.0005

logger = logging.getLogger(__name__)


class Server:
    """The models, what keeps them up to date, a data plane and its frontends."""

    def __init__(
        self,
        settings: Settings,
        load: Load,
        on_failure: Callable[[str], None],
        aside: Callable[[Callable[[], None]], None] = lambda work: work(),
        platform: "PlatformConfig | None" = None,
    ) -> None:
        """Takes what to serve and how to load it.

        Args:
          platform: how batches and warm-ups are run, in the place of what flags say of it; the
            settings have the rest of it.
          aside: runs the warm-up of a version.
          on_failure: called with the reason, from any thread, should a frontend end by itself.

        Raises:
          TpuserveError: a file that the settings name cannot be used.
        """
        self._settings = settings
        self._frontends: list[Frontend] = []
        secrets = _read_tls(settings.ssl_config_file) if settings.ssl_config_file else None
        keys = ApiKeys(Path(settings.api_keys_file)) if settings.api_keys_file else None
        monitoring_file = settings.monitoring_config_file
        metrics_path = (
            monitoring.read_metrics_path(Path(monitoring_file)) if monitoring_file else None
        )
        self._metrics = Metrics()
        self._admission = AdmissionController(settings.max_requests_in_flight)
        self._metrics.watch_in_flight(lambda: self._admission.in_flight)
        self._request_log = RequestLog(self._metrics)
        make_runner, self._close_batching = runner_factory.batching(
            settings, platform, self._metrics
        )
        self._manager = Manager(
            load,
            make_runner=make_runner,
            warm_up=runner_factory.warm_up(settings, platform, self._metrics, aside),
            retries=Retries(
                settings.max_num_load_retries, settings.load_retry_interval_micros / 1e6
            ),
            load_threads=settings.num_load_threads,
            unload_threads=settings.num_unload_threads,
            during_move=malloc.of_models,
            after_unload=malloc.give_back,
        )
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
            tls=secrets,
            metrics_path=metrics_path,
            on_failure=on_failure,
        )
        self._config_text = ""
        self._told_of_config = ""
        self._pollers = [
            PeriodicFunction(
                "base paths", self._source.poll_once, settings.file_system_poll_wait_seconds
            ),
            PeriodicFunction(
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
          PortInUse, InvalidSetting: a port or a socket that cannot be listened on.
          InvalidConfig: the model config file is wrong.
          BasePathNotFound, VersionNotFound: the only model is not there.
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
                # Told before TensorFlow is waited for.
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
        for each in self._pollers:
            each.start()
        self._admission.mark_ready()

    def stop(self) -> bool:
        """Stops serving, and closes the models.

        Readiness goes first, and new requests are refused while those in flight finish; then no
        connection is accepted any more.

        Returns:
          Whether all is closed: False where a request outlasts the grace period, or a load is
          still under way.
        """
        self._admission.drain()
        for frontend in self._frontends:
            frontend.drain()
        for each in self._pollers:
            each.stop()
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

    def reload_file(self) -> None:
        """Puts the model config file in force, if it has changed; what is wrong is logged."""
        path = Path(self._settings.model_config_file)
        try:
            text = textproto.read_text(path)
            if text == self._config_text or model_file.is_empty(text):
                # A file that is being written is empty at first: that is no wish to unload all.
                self._told_of_config = ""
                return
            self._config_manager.reload(model_file.parse_model_config(text, path), wait=False)
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
        self._config_text = textproto.read_text(Path(settings.model_config_file))
        return model_file.parse_model_config(self._config_text, Path(settings.model_config_file))

    def _configure_request_log(self, config: ModelServerConfig) -> None:
        self._request_log.configure(
            {each.name: each.logging for each in config.models if each.logging is not None}
        )


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
      load: turns a version's directory into a model; None loads SavedModelLoader.
      ignored: flags that were given and have no effect, which the log is to say.
      signals: those that are listened to already; None to begin with it here.

    Raises:
      TpuserveError: the server cannot start, or has failed.
    """
    logs.configure_logging()
    malloc.be_returnable()
    sys.setswitchinterval(_SWITCH_SECONDS)
    if signals is None:
        signals = StopSignals()
        signals.install()
    stop, serving = signals.request_stop, signals.mark_serving
    failures: list[str] = []

    def on_failure(reason: str) -> None:
        failures.append(reason)
        stop(reason)

    if ignored:
        logger.warning("without effect here: %s", ", ".join(f"--{name}" for name in ignored))
    settings, platform = _with_platform(settings)
    if settings.mixed_precision not in ("", "bfloat16"):
        logger.warning("--mixed_precision=%s: only bfloat16 is known", settings.mixed_precision)
    saved_models = SavedModelLoader(settings, platform.session_config if platform else b"")
    server = Server(settings, load or saved_models, on_failure, saved_models.executor, platform)
    is_closed = False

    def before_serving() -> None:
        serving()
        saved_models.mark_serving()

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


def _with_platform(settings: Settings) -> "tuple[Settings, PlatformConfig | None]":
    """The settings as the platform config file has them, and the file; it tells what is in vain."""
    file = settings.platform_config_file
    if not file:
        return settings, None
    from server.config import platform_config

    found = platform_config.read_platform_config(Path(file))
    if found.fields_without_effect:
        logger.warning("%s: without effect here: %s", file, ", ".join(found.fields_without_effect))
    overridden_flags = found.overridden_flags(settings)
    if overridden_flags:
        names = ", ".join(f"--{name}" for name in overridden_flags)
        logger.warning("--platform_config_file is in the place of %s", names)
    return found.apply_to(settings), found


def _read_tls(path: str) -> tls.TlsConfig:
    from server.frontends.rest.transport import tls as rest_tls

    found = tls.read_tls_config(Path(path))
    # Told before a model is loaded; and gRPC would not say what is wrong with its keys.
    rest_tls.create_ssl_context(found)
    return found
