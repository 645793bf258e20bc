"""The engine process: runs the models, and answers the calls of the frontend processes."""

import contextlib
import importlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING

from server.config.settings import Settings
from server.engine import Engine
from server.frontends.base import LAST_SECONDS
from server.metrics import Metrics
from server.multiprocess import process_setup
from server.multiprocess.control import ControlChannel, ControlMessage
from server.process import resident_memory
from server.remote.channel import Channel
from server.remote.endpoint import EngineEndpoint
from server.servables.servable import Load
from tpuserve.errors import TpuserveError
from tpuserve.runtime import gc_control, serving_import

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from typing import Any

    from server.config.platform_config import PlatformConfig

# The interval, in seconds, at which the starting engine checks whether its activity, such as
# "loading resnet", has changed and must be reported to the supervisor.
_ACTIVITY_SECONDS = 0.1

logger = logging.getLogger(__name__)


def run_engine(
    connection: "Connection[Any, Any]",
    supervisor_pid: int,
    settings: Settings,
    load: Load | None,
    platform: "PlatformConfig | None",
) -> None:
    """Run the engine of a server until the supervisor stops it.

    This is the main function of the engine process.

    Args:
      connection: the connection to the supervisor.
      supervisor_pid: the process ID of the supervisor.
      settings: the settings of the server, including those of the platform config file.
      load: loads the model in a version's directory; None for the loader of SavedModels.
      platform: the batching and warm-up settings of the platform config file; None if there is no
        such file.
    """
    process_setup.set_up_process("tpuserve-engine", supervisor_pid)
    control = ControlChannel(connection)
    messages: SimpleQueue[ControlMessage] = SimpleQueue()
    metrics = Metrics()
    metrics.watch_memory(resident_memory.resident_bytes)

    def handle(message: ControlMessage) -> None:
        if message.name == "snapshot":
            control.send("snapshot", metrics.snapshot())
        else:
            messages.put(message)

    process_setup.receive_in_thread(control, handle)
    try:
        engine = Engine(settings, load, metrics, platform)
        engine.check_models()
        control.send("activity", "importing TensorFlow")
        if load is None:
            _preload_modules()
        with _reported_activity(control, lambda: engine.startup_activity):
            engine.load_models()
    except TpuserveError as error:
        control.send("failed", (error, error.__cause__))
        os._exit(1)
    engine.mark_serving()
    endpoint = EngineEndpoint(engine.dataplane, _count_threads(settings), metrics)
    endpoint.start()
    engine.watch_states(endpoint.tell_state)
    control.send("ready", engine.model_names)
    while (message := messages.get()).name != "stop":
        assert message.connection is not None
        _connect(endpoint, message.connection)
    engine.stop_polling()
    is_closed = engine.close(LAST_SECONDS, LAST_SECONDS if message.value else 0)
    endpoint.close()
    control.send("stopped", is_closed)
    # Exit without waiting for other threads, because the threads of unfinished requests would keep
    # the process alive.
    logging.shutdown()
    os._exit(0)


def _preload_modules() -> None:
    """Import TensorFlow and the modules that need it, so that no load or request waits for this."""
    logger.info("starting: importing TensorFlow, which takes a few seconds")
    serving_import.import_tensorflow_for_serving()
    with gc_control.gc_disabled():
        importlib.import_module("server.warmup.replayer")


@contextlib.contextmanager
def _reported_activity(control: ControlChannel, describe: Callable[[], str]) -> Iterator[None]:
    """Report the activity of the starting engine to the supervisor while the `with` body runs.

    The supervisor shows the activity in readiness checks.

    Args:
      control: the connection to the supervisor.
      describe: returns the current activity, such as "loading resnet".
    """
    is_over = threading.Event()

    def report() -> None:
        reported = ""
        while not is_over.wait(_ACTIVITY_SECONDS):
            activity = describe()
            if activity != reported:
                reported = activity
                control.send("activity", activity)

    thread = threading.Thread(target=report, name="activity", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _connect(endpoint: EngineEndpoint, connection: "Any") -> None:
    def connect() -> None:
        try:
            endpoint.add(Channel(connection))
        except OSError as error:
            logger.warning("a frontend process has ended before it was connected: %s", error)

    # Create the channel to the frontend process in another thread, because the constructor of
    # `Channel` waits for an answer of that process, and this can take long.
    threading.Thread(target=connect, name="connect", daemon=True).start()


def _count_threads(settings: Settings) -> int:
    return settings.grpc_max_threads + (settings.rest_api_num_threads or 4 * (os.cpu_count() or 1))
