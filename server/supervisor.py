"""Runs several whole servers behind the same ports (--processes), and replaces those that end."""

import faulthandler
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from prometheus_client import multiprocess, values

from server import app
from server.config.settings import Settings
from server.frontends import base, group
from server.metrics.metrics import PROCESSES_DIRECTORY
from server.process import memory_limit, ports
from server.process.signals import StopSignals
from server.servables.servable import Load
from tpuserve.errors import TpuserveError, Unavailable

if TYPE_CHECKING:
    from server.config.platform_config import PlatformConfig

# Start each process as a new Python interpreter and not by a fork: a fork copies locks that other
# threads hold, but not the threads that would release them.
_CONTEXT = multiprocessing.get_context("spawn")
# The pause before a process is started again, in seconds: each failure doubles it, and a process
# that has run for _STABLE_SECONDS begins anew.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _STABLE_SECONDS = 0.5, 30.0, 60.0
# A process must end within this time, in seconds, after the grace period. It is then killed.
_EXIT_SECONDS = 10.0

logger = logging.getLogger(__name__)


def run(
    settings: Settings,
    load: Load | None = None,
    ignored: Sequence[str] = (),
    variables: Sequence[str] = (),
    signals: StopSignals | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve in `settings.processes` processes until a signal arrives.

    The arguments and the errors are those of `server.app.run`. `load` must be picklable if there
    are several processes.
    """
    if settings.processes == 1:
        app.run(settings, load, ignored, variables, signals, on_ready)
        return
    app.configure_process(settings.log_format, is_log_shared=True)
    if signals is None:
        signals = StopSignals()
        signals.install()
    # A signal must not end this process before it has ended the others.
    signals.mark_serving()
    settings, platform = app.prepare(settings, ignored, variables)
    # The processes would report an invalid file only after a slow start.
    group.read_files(settings)
    with ExitStack() as stack:
        for port, flag in ((settings.rest_api_port, "--rest_api_port"), (settings.port, "--port")):
            reserved = base.reserve_port(stack, settings.host, port, flag)
            if reserved is not None:
                ports.share_port(reserved)
        os.environ[PROCESSES_DIRECTORY] = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="tpuserve-metrics-")
        )
        stack.callback(os.environ.pop, PROCESSES_DIRECTORY)
        memory_bytes = memory_limit.usable_memory_bytes() // 2 // settings.processes
        settings = replace(
            settings,
            max_request_memory_bytes=settings.max_request_memory_bytes or memory_bytes,
            grpc_channel_arguments=(("grpc.so_reuseport", 1), *settings.grpc_channel_arguments),
        )
        _Supervisor(settings, load, platform, signals, on_ready).run()
    logger.info("stopped")


class _Worker:
    """A place for a process, and the process that has it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.process: multiprocessing.process.BaseProcess | None = None
        self.connection: Connection | None = None
        # The last message of the process: "", "loaded", "ready" or "failed".
        self.state = ""
        self.error: TpuserveError | None = None
        self.pause_seconds = _FIRST_PAUSE_SECONDS
        self.started_at = self.restart_at = 0.0

    def send(self, message: str) -> None:
        # The end of the process is noticed elsewhere.
        with suppress(OSError):
            if self.connection is not None:
                self.connection.send(message)

    def end(self, seconds: float) -> int | None:
        """Wait for the end of the process, kill it if it takes longer, and return its status."""
        if self.process is None or self.connection is None:
            return None
        self.process.join(seconds)
        self.process.kill()
        self.process.join()
        status = self.process.exitcode
        if self.process.pid is not None:
            multiprocess.mark_process_dead(self.process.pid)  # type: ignore[no-untyped-call]
        self.connection.close()
        self.process = self.connection = None
        return status


class _Supervisor:
    """Starts the processes, starts those again that end, and stops all."""

    def __init__(
        self,
        settings: Settings,
        load: Load | None,
        platform: "PlatformConfig | None",
        signals: StopSignals,
        on_ready: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._arguments = load, platform
        self._signals = signals
        self._on_ready = on_ready
        self._workers = [_Worker(index) for index in range(settings.processes)]
        self._is_ready = False

    def run(self) -> None:
        try:
            while not self._handle_events():
                pass
            logger.info("%s: finishing the requests in flight", self._signals.wait())
        finally:
            for worker in self._workers:
                worker.send("stop")
            deadline = time.monotonic() + self._settings.shutdown_grace_seconds + _EXIT_SECONDS
            for worker in self._workers:
                worker.end(max(0.0, deadline - time.monotonic()))

    def _handle_events(self) -> bool:
        """Start processes whose time has come, and handle the next messages of the others.

        Returns:
          Whether a signal asks the server to stop.
        """
        now = time.monotonic()
        sources: dict[Connection, _Worker] = {}
        seconds: float | None = None
        for worker in self._workers:
            if worker.connection is None and worker.restart_at <= now:
                self._start(worker)
            if worker.connection is not None:
                sources[worker.connection] = worker
            else:
                pause = max(0.0, worker.restart_at - now)
                seconds = pause if seconds is None else min(seconds, pause)
        ready = connection.wait([self._signals.fileno(), *sources], seconds)
        for source, worker in sources.items():
            if source in ready:
                self._receive(worker)
        return self._signals.fileno() in ready

    def _start(self, worker: _Worker) -> None:
        # A UNIX socket cannot be shared.
        socket_path = self._settings.grpc_socket_path if worker.index == 0 else ""
        settings = replace(self._settings, grpc_socket_path=socket_path)
        worker.connection, there = _CONTEXT.Pipe()
        worker.state, worker.started_at = "", time.monotonic()
        worker.process = _CONTEXT.Process(
            target=_serve,
            args=(there, worker.index, self._is_ready, settings, *self._arguments),
            name=f"server {worker.index}",
            daemon=True,
        )
        with there:
            worker.process.start()

    def _receive(self, worker: _Worker) -> None:
        assert worker.connection is not None
        try:
            worker.state, *error = worker.connection.recv()
        except (EOFError, OSError):
            self._replace(worker)
            return
        if error:
            worker.error, cause = error
            worker.error.__cause__ = cause
        elif self._is_ready:
            worker.send("serve")
        elif all(other.state == "loaded" for other in self._workers):
            for other in self._workers:
                other.send("serve")
        elif all(other.state == "ready" for other in self._workers):
            self._is_ready = True
            logger.info("ready")
            self._on_ready()

    def _replace(self, worker: _Worker) -> None:
        status = worker.end(1)
        reason = f"with status {status}"
        if status is not None and status < 0:
            reason = f"by {signal.Signals(-status).name}"
        if not self._is_ready:
            raise worker.error or Unavailable(
                f"process {worker.index} has ended {reason} before it was ready; see the log for "
                f"the cause. Start the server again."
            )
        now = time.monotonic()
        if now - worker.started_at > _STABLE_SECONDS:
            worker.pause_seconds = _FIRST_PAUSE_SECONDS
        logger.error(
            "process %d has ended %s: starting it again in %g s",
            worker.index,
            f"{reason} ({worker.error})" if worker.error else reason,
            worker.pause_seconds,
        )
        worker.error = None
        worker.restart_at = now + worker.pause_seconds
        worker.pause_seconds = min(2 * worker.pause_seconds, _LONGEST_PAUSE_SECONDS)


def _serve(
    supervisor: Connection,
    index: int,
    is_replacement: bool,
    settings: Settings,
    load: Load | None,
    platform: "PlatformConfig | None",
) -> None:
    """Be one of the servers: the main function of a process."""
    # The supervisor handles the signals: a terminal sends Ctrl-C to all processes.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)
    app.configure_process(settings.log_format, is_log_shared=True)
    # A process that takes the place of another one goes on with its counts.
    values.ValueClass = values.MultiProcessValue(lambda: index)  # type: ignore[no-untyped-call]
    signals = _SupervisorSignals(supervisor)
    try:
        app.serve(
            settings, load, platform, signals, lambda: supervisor.send(("ready",)), is_replacement
        )
    except TpuserveError as error:
        supervisor.send(("failed", error, error.__cause__))
        sys.exit(1)


class _SupervisorSignals(StopSignals):
    """Waits until the supervisor stops the process, or has ended."""

    def __init__(self, supervisor: Connection) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._may_serve = threading.Event()
        threading.Thread(target=self._receive, name="supervisor", daemon=True).start()

    def mark_serving(self) -> None:
        """Wait until the models of all processes are loaded."""
        self._supervisor.send(("loaded",))
        self._may_serve.wait()
        super().mark_serving()

    def _receive(self) -> None:
        while True:
            try:
                message = self._supervisor.recv()
            except (EOFError, OSError):
                os._exit(1)
            if message == "serve":
                self._may_serve.set()
            else:
                self.stop("stop")
