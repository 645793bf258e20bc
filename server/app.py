"""Builds a server from its models and its frontends, runs the server and stops it."""

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from server.config.settings import LOG_JSON, Settings
from server.engine import Engine
from server.frontends import base
from server.frontends.base import LAST_SECONDS
from server.frontends.group import FrontendGroup
from server.metrics import Metrics
from server.process import logs, malloc
from server.process.signals import StopSignals
from server.servables.servable import Load
from tpuserve.errors import Unavailable

if TYPE_CHECKING:
    from server.config.platform_config import PlatformConfig

# The time, in seconds, after which a thread must release Python's GIL if other threads wait for it.
# With Python's default of 5 ms, the threads that load a model would delay requests.
_SWITCH_INTERVAL_SECONDS = 0.0005

logger = logging.getLogger(__name__)


class Server:
    """Serves models: owns the models, the threads that look for new versions, and the frontends.

    Args:
      settings: the settings of the server.
      load: a function that loads the model in the directory of a version; None to load
        SavedModels.
      on_failure: called with the reason, from any thread, if a frontend ends although nobody
        has stopped it.
      platform: the batching and warm-up settings of the platform config file; None without
        such a file.
    """

    def __init__(
        self,
        settings: Settings,
        load: Load | None,
        on_failure: Callable[[str], None],
        platform: "PlatformConfig | None" = None,
    ) -> None:
        self._settings = settings
        metrics = Metrics(tuple(filter(None, settings.metrics_drop_labels.split(","))))
        self._engine = Engine(settings, load, metrics, platform)
        self._frontends = FrontendGroup(settings, self._engine.dataplane, metrics, on_failure)

    def start(
        self, before_serving: Callable[[], None] = lambda: None, *, is_replacement: bool = False
    ) -> None:
        """Bind the ports, load the models and then answer requests.

        The server answers health checks over REST at once, before the slow import of TensorFlow.

        Args:
          before_serving: a function that is called after the models are loaded and before requests
            are answered. The default does nothing.
          is_replacement: whether other processes answer on the same ports already: this server
            then accepts connections only when it can answer them.

        Raises:
          LabelNotAvailable: the model config file sets a version label, although no version is
            loaded yet, and the flags do not allow that.
        """
        with ExitStack() as on_error:
            self._frontends.reserve_ports(on_error, are_shared=self._settings.processes > 1)
            self._engine.check_models()
            logger.info("starting: importing TensorFlow, which takes a few seconds")
            self._frontends.report_startup(lambda: "importing TensorFlow")
            on_error.callback(self._frontends.close_now)
            if not is_replacement:
                self._frontends.start_rest()
            base.import_tensorflow_and_grpc_modules(self._settings)
            self._frontends.report_startup(lambda: self._engine.startup_activity)
            self._engine.load_models()
            before_serving()
            self._engine.mark_serving()
            if not is_replacement:
                self._frontends.start_grpc()
            on_error.pop_all()
        self._frontends.mark_ready()
        if is_replacement:
            self._frontends.start_rest()
            self._frontends.start_grpc()
        base.log_addresses(self._settings, self._engine.model_names)

    def stop(self) -> bool:
        """Stop serving and close the models.

        The server first reports that it is not ready and refuses new requests while the requests in
        flight finish.

        Returns:
          Whether everything is closed. False if a request outlasts the grace period or a model is
          still being loaded.
        """
        deadline = time.monotonic() + self._settings.shutdown_grace_seconds
        self._frontends.drain()
        self._engine.stop_polling()
        is_idle = self._frontends.stop()
        # The request log may use the rest of the grace period for its uploads.
        log_seconds = max(LAST_SECONDS, deadline - time.monotonic())
        return self._engine.close(log_seconds, LAST_SECONDS if is_idle else 0) and is_idle

    def reload_config_file(self) -> None:
        """Apply the model config file if it has changed; log an error if it is invalid."""
        self._engine.reload_config_file()


def run(
    settings: Settings,
    load: Load | None = None,
    ignored: Sequence[str] = (),
    variables: Sequence[str] = (),
    signals: StopSignals | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal arrives, and return once everything is closed.

    If a request outlasts the grace period, the process exits without waiting for the request: with
    status 0 after a signal, and with status 1 after a failure.

    Args:
      load: a function that loads the model in the directory of a version; None to load SavedModels.
      variables: the flags that environment variables have set, each with its variable, such as
        "--rest_api_port=8080 (AIP_HTTP_PORT)"; they are logged.
      signals: the installed handlers of the signals that stop the server, such as SIGTERM; None to
        install new handlers.
    """
    configure_process(settings.log_format)
    if signals is None:
        signals = StopSignals()
        signals.install()
    settings, platform = prepare(settings, ignored, variables)

    def log_ready() -> None:
        logger.info("ready")
        on_ready()

    serve(settings, load, platform, signals, log_ready)


def configure_process(log_format: str, *, is_log_shared: bool = False) -> None:
    """Configure the logs, the memory allocator and the threads of a process that serves.

    `is_log_shared` says whether other processes of this server write to the same stderr.
    """
    logs.configure_logging(is_json=log_format == LOG_JSON, is_shared=is_log_shared)
    malloc.configure_malloc()
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)


def prepare(
    settings: Settings, ignored: Sequence[str], variables: Sequence[str]
) -> "tuple[Settings, PlatformConfig | None]":
    """Log what becomes of the flags, and apply the platform config file.

    The arguments are those of `run`.
    """
    if ignored:
        logger.warning("ignored flags: %s", ", ".join(f"--{name}" for name in ignored))
    if variables:
        logger.info("flags set by environment variables: %s", ", ".join(variables))
    settings, platform = _apply_platform_config(settings)
    if settings.mixed_precision not in ("", "bfloat16"):
        logger.warning(
            "--mixed_precision=%s is ignored: the only supported value is bfloat16",
            settings.mixed_precision,
        )
    return settings, platform


def serve(
    settings: Settings,
    load: Load | None,
    platform: "PlatformConfig | None",
    signals: StopSignals,
    on_ready: Callable[[], None],
    is_replacement: bool = False,
) -> None:
    """Serve until `signals` asks to stop; see `run` and `Server`."""
    failures: list[str] = []

    def on_failure(reason: str) -> None:
        failures.append(reason)
        signals.request_stop(reason)

    server = Server(settings, load, on_failure, platform)
    is_closed = False
    try:
        server.start(signals.mark_serving, is_replacement=is_replacement)
        on_ready()
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
    """Return the settings with the platform config file applied, and the file's parsed content."""
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
