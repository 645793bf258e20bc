"""Sets up a process of a server: signals, logs, and the exit when the supervisor dies."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

from server.multiprocess.control import ControlChannel, ControlMessage
from server.process import logs, malloc

# The options of prctl. Source: linux/prctl.h.
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
# How long a thread keeps Python's GIL while other threads wait for the GIL, in seconds. With
# Python's default of 5 ms, the threads that load a model would delay requests.
_SWITCH_INTERVAL_SECONDS = 0.0005


def set_up_process(name: str, supervisor_pid: int) -> None:
    """Prepare a process that the supervisor has started.

    The process leaves signals to the supervisor, because Ctrl-C, and some process managers, signal
    all processes of a server, and the supervisor stops them in order. The system kills the process
    when the supervisor dies.

    Args:
      name: the name that tools such as ps and top show; at most 15 characters.
      supervisor_pid: the process ID of the supervisor.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform.startswith("linux"):
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_NAME, name.encode())
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor_pid:
        os._exit(1)  # The supervisor died before prctl tied this process to it.
    logs.configure_logging(is_shared=True)
    malloc.configure_malloc()
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)


def receive_in_thread(control: ControlChannel, handle: Callable[[ControlMessage], None]) -> None:
    """Handle the supervisor's messages in a thread; exit the process when the supervisor is gone.

    Args:
      control: the connection to the supervisor.
      handle: called with each message.
    """

    def receive() -> None:
        while (message := control.receive()) is not None:
            handle(message)
        os._exit(1)

    threading.Thread(target=receive, name="control", daemon=True).start()
