r"""Forks processes that run Python programs, after importing TensorFlow once.

    python -c "from tests.preloaded import fork_server; fork_server.serve_requests()()" \
        SOCKET MODULES

SOCKET is the number of the open socket that requests arrive on. MODULES are the names of modules to
import after TensorFlow, each an argument. Modules that are not installed are left out. A request is
a JSON object with the arguments of the Python interpreter, the environment and the working
directory of a process. The process's standard streams arrive as file descriptors. The reply is the
process's ID.

A fork of a process with several threads may hang, because it copies locks that other threads hold.
So this program ends if the import has started a thread. Some optional packages start threads when
TensorFlow imports them, so PYTHONPATH hides these packages from this program.
"""

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from tpuserve.runtime import gc_control

Call: TypeAlias = Callable[[], object]

# Less than the size of the buffer of a Unix socket.
MAX_REQUEST_BYTES = 1 << 17
_STREAMS = 3


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork a process for each request.

    Returns:
      In a forked process: its request. In this process: None, after the tests have closed the
      socket.
    """
    while True:
        message, streams, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, _STREAMS)
        if not message:
            return None
        read_end, write_end = os.pipe()
        # The new process becomes a child of the process that sent the request, because the
        # intermediate process ends.
        intermediate = os.fork()
        if intermediate == 0:
            parent = os.getpid()
            process = os.fork()
            if process == 0:
                while os.getppid() == parent:
                    time.sleep(0.001)
                requests.close()
                for stream in (read_end, write_end):
                    os.close(stream)
                for target, stream in enumerate(streams):
                    os.dup2(stream, target)
                    os.close(stream)
                request: dict[str, Any] = json.loads(message)
                return request
            os.write(write_end, b"%d\n" % process)
            os._exit(0)
        os.waitpid(intermediate, 0)
        requests.sendall(os.read(read_end, 64))
        for stream in (read_end, write_end, *streams):
            os.close(stream)


def _program_call(arguments: list[str]) -> Call:
    """Return the call that runs a module, a command or a script, as the Python interpreter does."""
    added = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[:0] = [os.getcwd(), *added]
        return partial(runpy.run_module, arguments[1], run_name="__main__", alter_sys=True)
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path[:0] = [os.getcwd(), *added]
        return partial(exec, compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    sys.argv = arguments
    sys.path[:0] = [str(Path(arguments[0]).parent), *added]
    return partial(runpy.run_path, arguments[0], run_name="__main__")


def serve_requests() -> Call:
    """Import TensorFlow and other modules, and fork a process for each request.

    Returns:
      In a forked process: the call that runs the requested program. The caller makes this call, so
      that the program's stack has no function of this file. In the fork server: a call without
      effect, after the tests have closed the socket.
    """
    # The end of a process would search all objects for garbage, and so copy TensorFlow's memory.
    with gc_control.gc_disabled():
        import tensorflow  # noqa: F401

        # The directory of this program, and those of PYTHONPATH.
        del sys.path[: 1 + len(os.environ["PYTHONPATH"].split(os.pathsep))]
        for module in sys.argv[2:]:
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(module)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"the imports have started {len(threads) - 1} threads"
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        requests.sendall(b"ready\n")
        request = _serve(requests)
    if request is None:
        return lambda: None
    # A shell may have started the tests with this signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return _program_call(request["arguments"])
