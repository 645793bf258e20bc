"""Sets up a process of a server: signals, logs, and the exit when the supervisor dies."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

from server.multiprocess.control import ControlChannel, ControlMessage
from server.process import logs, malloc

# The numbers of the options of prctl(2) that this module uses. Source: linux/prctl.h.
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
# The time, in seconds, after which a thread must release Python's GIL if other threads wait for it.
# With Python's default of 5 ms, the threads that load a model would delay requests.
_SWITCH_INTERVAL_SECONDS = 0.0005


def set_up_process(name: str, supervisor_pid: int) -> None:
    """Prepare a process that the supervisor has started.

    The process ignores SIGINT and SIGTERM: Ctrl-C and some process managers send these signals to
    all processes of a server, but the supervisor must stop the frontend processes before the engine
    process. On Linux, the operating system kills the process when the supervisor dies.

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
    # By prctl, the operating system kills this process when the supervisor ends later. If the
    # supervisor has ended already, the operating system does nothing, so exit here.
    if os.getppid() != supervisor_pid:
        os._exit(1)
    configure_process(is_log_shared=True)


def configure_process(*, is_log_shared: bool) -> None:
    """Set up the log, the memory allocator and the switching of threads in this process.

    Args:
      is_log_shared: whether several processes write to the log.
    """
    logs.configure_logging(is_shared=is_log_shared)
    malloc.configure_malloc()
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)


def receive_in_thread(control: ControlChannel, handle: Callable[[ControlMessage], None]) -> None:
    """Handle the supervisor's messages in a new thread; exit the process if the supervisor ends.

    Args:
      control: the connection to the supervisor.
      handle: called with each message.
    """

    def receive() -> None:
        while (message := control.receive()) is not None:
            handle(message)
        os._exit(1)

    threading.Thread(target=receive, name="control", daemon=True).start()
