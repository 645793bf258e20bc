"""A frontend process: accepts connections of clients, and sends their requests to the engine."""

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from server.config.settings import Settings
from server.frontends.group import FrontendGroup
from server.multiprocess import process_setup
from server.multiprocess.control import ControlChannel, ControlMessage
from server.multiprocess.metrics_page import ServerMetrics
from server.remote.channel_loop import ChannelLoop, ChannelReader, OnClosed, OnMessage
from server.remote.client import EngineClient
from server.remote.data_plane import RemoteDataPlane
from server.remote.event_loop_client import EventLoopClient
from tpuserve.errors import TpuserveError
from tpuserve.runtime import tensorflow_stub

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

logger = logging.getLogger(__name__)


def run_frontend(
    connection: "Connection[Any, Any]", supervisor_pid: int, settings: Settings, index: int
) -> None:
    """Run the REST and gRPC frontends until the supervisor stops them.

    This is the main function of a frontend process.

    Args:
      connection: the connection to the supervisor.
      supervisor_pid: the process ID of the supervisor.
      settings: the settings of this process, from `frontend_settings`.
      index: the number of this process among the frontend processes, from 0.
    """
    process_setup.set_up_process(f"tpuserve-front{index}", supervisor_pid)
    # Make TensorFlow's generated protobuf modules importable without importing TensorFlow, which
    # this process does not need and which takes seconds.
    tensorflow_stub.install_stub()
    control = ControlChannel(connection)
    messages: SimpleQueue[ControlMessage] = SimpleQueue()
    metrics = ServerMetrics(lambda number: control.send("collect", number))

    def handle(message: ControlMessage) -> None:
        if message.name == "snapshot":
            control.send("snapshot", metrics.snapshot())
        elif message.name == "collected":
            metrics.receive(*message.value)
        else:
            messages.put(message)

    process_setup.receive_in_thread(control, handle)
    client = _create_thread_client(lambda: messages.put(ControlMessage("disconnected")))
    loop_client = EventLoopClient()
    try:
        frontends = FrontendGroup(
            settings,
            RemoteDataPlane(client, loop_client),
            metrics,
            on_failure=_exit_after_failure,
        )
        with ExitStack() as on_error:
            frontends.reserve_ports(on_error, are_shared=True)
            _report_startup(frontends, "starting the process that runs the models")
            frontends.start_rest()
            on_error.pop_all()
    except TpuserveError as error:
        control.send("failed", (error, error.__cause__))
        os._exit(1)
    control.send("listening")
    _follow_supervisor(control, messages, frontends, client, loop_client)
    frontends.drain()
    frontends.wait_until_idle()
    control.send("idle")
    while messages.get().name != "stop":
        pass
    control.send("stopped", frontends.stop())
    logging.shutdown()
    os._exit(0)


def _follow_supervisor(
    control: ControlChannel,
    messages: "SimpleQueue[ControlMessage]",
    frontends: FrontendGroup,
    client: EngineClient,
    loop_client: EventLoopClient,
) -> None:
    """Handle the supervisor's messages until the message "drain".

    Some messages contain a socket that is connected to a new engine process. The frontend process
    then sends its calls over this socket.

    Args:
      control: the connection to the supervisor.
      messages: the received messages.
      frontends: the REST and gRPC frontends of this process.
      client: sends the calls of threads to the engine process.
      loop_client: sends the calls of the event loop to the engine process.
    """
    is_first = True
    while (message := messages.get()).name != "drain":
        if message.name == "activity":
            _report_startup(frontends, message.value)
            continue
        if message.name == "disconnected":
            _report_startup(frontends, "the models are started again after a failure")
            continue
        assert message.connection is not None
        try:
            if message.value == "event loop":
                loop_client.connect(message.connection)
                continue
            client.connect(message.connection)
            # Wait for the state of the models. Otherwise a readiness check could fail after the
            # server has reported that it is ready.
            client.wait_for_state()
            if is_first:
                frontends.start_grpc()
        except OSError as error:
            logger.warning("the engine process has ended before it was connected: %s", error)
            continue
        except TpuserveError as error:
            control.send("failed", (error, error.__cause__))
            os._exit(1)
        is_first = False
        frontends.mark_ready()
        control.send("connected")


def _create_thread_client(on_disconnected: Callable[[], None]) -> EngineClient:
    def make_reader(on_message: OnMessage, on_closed: OnClosed) -> ChannelReader:
        loop = ChannelLoop("engine-client", on_message, on_closed)
        loop.start()
        return loop

    return EngineClient(make_reader, on_disconnected)


def _report_startup(frontends: FrontendGroup, activity: str) -> None:
    frontends.report_startup(lambda: activity)


def _exit_after_failure(reason: str) -> None:
    """Exit the process after a failure of a frontend; the supervisor then starts a new process."""
    logger.error("%s", reason)
    os._exit(1)
