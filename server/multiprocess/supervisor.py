"""The supervisor: starts and connects the processes of a server, and replaces failed processes."""

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from server.config.settings import Settings
from server.frontends import base, group
from server.multiprocess.control import ControlMessage
from server.multiprocess.engine_process import run_engine
from server.multiprocess.frontend_process import run_frontend
from server.multiprocess.frontend_settings import frontend_settings
from server.multiprocess.metrics_page import MetricsCollector
from server.multiprocess.place import Place
from server.multiprocess.supervised_process import SupervisedProcess
from server.process import ports
from server.servables.servable import Load
from tpuserve.errors import TpuserveError, Unavailable

if TYPE_CHECKING:
    from server.config.platform_config import PlatformConfig

# The frontend processes must stop within this time, in seconds, after the end of the grace period.
# The engine process must stop within the same time after the frontend processes have stopped. A
# process that still runs is then killed.
_EXIT_SECONDS = 10.0

logger = logging.getLogger(__name__)


class Supervisor:
    """A server of several processes, with the methods of the single-process `server.app.Server`.

    The engine process runs the models. The frontend processes listen together on the same ports,
    and each is connected to the engine process. A process that fails is started again. The
    supervisor itself does not import TensorFlow, and requests do not pass through it.
    """

    def __init__(
        self,
        settings: Settings,
        load: Load | None,
        platform: "PlatformConfig | None" = None,
    ) -> None:
        """Create a server that does not listen yet.

        Args:
          settings: the settings of the server, including those of the platform config file.
          load: loads the model in a version's directory; None for the loader of SavedModels. The
            function must be picklable, because it is sent to the engine process.
          platform: the batching and warm-up settings of the platform config file; None if there is
            no such file.
        """
        self._settings = settings
        self._events: SimpleQueue[tuple[SupervisedProcess, ControlMessage | None] | None] = (
            SimpleQueue()
        )
        self._engine = Place("engine", run_engine, (settings, load, platform))
        self._frontends = [
            Place(f"frontend {index}", run_frontend, (own, index))
            for index, own in enumerate(frontend_settings(settings))
        ]
        self._reserved = ExitStack()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._is_started = threading.Event()
        self._start_error: TpuserveError | None = None
        self._is_closed = True
        # The processes that have ended since `stop` was called.
        self._ended: set[SupervisedProcess] = set()
        self._places = (self._engine, *self._frontends)
        self._metrics = MetricsCollector()
        self._model_names: list[str] = []
        self._before_serving: Callable[[], None] = lambda: None

    def start(self, before_serving: Callable[[], None] = lambda: None) -> None:
        """Start the processes, and wait until the models are loaded and all ports answer requests.

        Args:
          before_serving: called when the models are loaded, before requests are answered.

        Raises:
          PortInUse: another process listens on a port.
          InvalidSetting: the server cannot listen on a port or a socket.
          Unavailable: a process has ended without reporting an error.
          TpuserveError: a file that is named in the settings cannot be used, or a process has
            reported an error, for example because no model can be loaded. The error of the process
            is then raised here.
        """
        settings = self._settings
        # Check the configuration files here, because the processes would report an invalid file
        # only after a slow start.
        group.read_files(settings)
        with ExitStack() as on_error:
            for port, flag in (
                (settings.rest_api_port, "--rest_api_port"),
                (settings.port, "--port"),
            ):
                reserved = base.reserve_port(on_error, settings.host, port, flag)
                if reserved is not None:
                    ports.share_port(reserved)
            self._reserved = on_error.pop_all()
        self._before_serving = before_serving
        self._thread.start()
        self._is_started.wait()
        if self._start_error is not None:
            raise self._start_error
        base.log_addresses(settings, self._model_names)

    def stop(self) -> bool:
        """Stop the frontend processes when their requests in flight are answered, then the engine.

        Returns:
          True if all processes have reported an orderly stop. False if a request was still in
          flight at the end of the grace period, or a load was in progress.
        """
        self._reserved.close()
        if self._thread.is_alive():
            self._events.put(None)
            self._thread.join()
        return self._is_closed

    def _run(self) -> None:
        for place in self._places:
            self._start_process(place)
        while True:
            try:
                event = self._events.get(timeout=self._seconds_to_next_deadline())
            except Empty:
                self._restart_processes()
                self._metrics.answer()
                continue
            if event is None:
                self._is_closed = self._stop_all()
                return
            process, message = event
            for place in self._places:
                if place.process is process:
                    self._handle(place, process, message)

    def _handle(
        self, place: Place, process: SupervisedProcess, message: ControlMessage | None
    ) -> None:
        if message is None:
            self._handle_end(place)
        elif message.name == "failed":
            self._handle_failure(place, *message.value)
        elif message.name == "activity":
            for frontend in self._frontends:
                if frontend.process is not None:
                    frontend.process.send("activity", message.value)
        elif message.name == "collect":
            running = [other.process for other in self._places if other.process is not None]
            self._metrics.begin(process, message.value, running)
        elif message.name == "snapshot":
            self._metrics.update(process, message.value)
        elif message.name == "connected":
            place.is_connected = True
            if all(frontend.is_connected for frontend in self._frontends):
                self._is_started.set()
        elif message.name == "listening":
            place.is_ready = True
            self._connect(place)
        elif message.name == "ready":
            self._before_serving()
            place.is_ready = True
            self._model_names = message.value
            for frontend in self._frontends:
                self._connect(frontend)

    def _connect(self, frontend: Place) -> None:
        """Connect a frontend process to the engine process, if both are ready."""
        if not (frontend.is_ready and self._engine.is_ready):
            return
        assert frontend.process is not None
        assert self._engine.process is not None
        try:
            for user in ("event loop", "threads"):
                frontend_end, engine_end = socket.socketpair()
                with frontend_end, engine_end:
                    frontend.process.send("connect", user, frontend_end)
                    self._engine.process.send("connect", connection=engine_end)
        except OSError as error:
            # Kill the frontend process, because one of its two connections may exist. The process
            # that replaces it is connected anew.
            logger.error("the %s process cannot be connected: %s", frontend.name, error)
            frontend.process.kill()

    def _handle_failure(
        self, place: Place, error: TpuserveError, cause: BaseException | None
    ) -> None:
        if self._start_error is not None:
            return
        if self._is_started.is_set():
            logger.error("%s: %s", place.name, error)
            return
        # Set the cause of the error again, because pickle does not keep the cause of an exception.
        error.__cause__ = cause
        self._start_error = error
        self._is_started.set()

    def _handle_end(self, place: Place) -> None:
        assert place.process is not None
        self._metrics.end(place.process)
        exit_text = _format_exit(place.process.exit_code)
        self._plan_restart(place, f"the {place.name} process has ended {exit_text}")

    def _plan_restart(self, place: Place, reason: str) -> None:
        """Plan the next start of a process that does not run; `reason` says why it does not."""
        seconds = place.end()
        if self._start_error is None and not self._is_started.is_set():
            self._start_error = Unavailable(f"{reason}. See the log for the cause.")
            self._is_started.set()
        if self._start_error is not None:
            # The start of the server has failed, and the server ends. So do not start the process
            # again.
            place.restart_at = None
            return
        logger.error("%s: starting it again in %g s", reason, seconds)

    def _seconds_to_next_deadline(self) -> float | None:
        times = [place.restart_at for place in self._places if place.restart_at is not None]
        times += self._metrics.deadlines
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _restart_processes(self) -> None:
        now = time.monotonic()
        for place in self._places:
            if place.restart_at is not None and place.restart_at <= now:
                self._start_process(place)

    def _start_process(self, place: Place) -> None:
        try:
            place.start(self._put_event)
        except (OSError, RuntimeError) as error:
            # The limit of processes, files, memory or threads is reached.
            self._plan_restart(place, f"the {place.name} process cannot be started: {error}")

    def _put_event(self, process: SupervisedProcess, message: ControlMessage | None) -> None:
        self._events.put((process, message))

    def _stop_all(self) -> bool:
        # Stop the processes in the thread that has started them. This thread must not end earlier,
        # because the operating system kills a process when the thread that has started it ends.
        if self._start_error is not None:
            for place in self._places:
                if place.process is not None:
                    place.process.kill()
            return True
        deadline = time.monotonic() + self._settings.shutdown_grace_seconds + _EXIT_SECONDS
        self._drain_frontends(deadline)
        is_idle = self._stop_processes(self._frontends, None, deadline)
        deadline = time.monotonic() + _EXIT_SECONDS
        return self._stop_processes([self._engine], is_idle, deadline) and is_idle

    def _drain_frontends(self, deadline: float) -> None:
        """Let all frontend processes refuse new requests, and wait until no request is in flight.

        A frontend process without requests continues to listen meanwhile. If it closed its socket,
        new connections that wait in the queue of the socket would be reset.

        Args:
          deadline: the end of the wait, in seconds of `time.monotonic`.
        """
        running = _processes(self._frontends)
        for process in running:
            process.send("drain")
        idle: set[SupervisedProcess] = set()
        for process, message in self._messages_until(
            lambda: (idle | self._ended).issuperset(running), deadline
        ):
            if message.name == "idle":
                idle.add(process)

    def _stop_processes(
        self, places: Sequence[Place], is_idle: bool | None, deadline: float
    ) -> bool:
        """Stop processes, and wait until they have ended.

        Args:
          places: the slots of the processes.
          is_idle: for the engine process, whether no request is in flight, so that the engine may
            unload the models; None for frontend processes.
          deadline: the end of the wait, in seconds of `time.monotonic`. Processes that still run
            are then killed.

        Returns:
          Whether all processes have reported an orderly stop.
        """
        running = _processes(places)
        for process in running:
            process.send("stop", is_idle)
        are_closed = {process: False for process in running}
        for process, message in self._messages_until(
            lambda: self._ended.issuperset(running), deadline
        ):
            if message.name == "stopped":
                are_closed[process] = bool(message.value)
        for process in running:
            process.kill()
        return all(are_closed.values())

    def _messages_until(
        self, is_over: Callable[[], bool], deadline: float
    ) -> Iterator[tuple[SupervisedProcess, ControlMessage]]:
        """Yield the messages of the processes until a condition holds.

        Args:
          is_over: returns whether the condition holds; called after each message, and after each
            end of a process.
          deadline: the latest end, in seconds of `time.monotonic`.
        """
        while not is_over():
            try:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                return
            if event is None:
                continue
            process, message = event
            if message is None:
                self._ended.add(process)
            else:
                yield process, message


def _processes(places: Sequence[Place]) -> list[SupervisedProcess]:
    return [place.process for place in places if place.process is not None]


def _format_exit(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"by {signal.Signals(-exit_code).name}"
    return f"with status {exit_code}"
