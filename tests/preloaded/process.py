"""Starts Python programs in processes that have TensorFlow already: forks of a fork server.

A process that imports TensorFlow by itself takes some three seconds of processor time to do so. A
forked process is a child of the test's process like any other, with its own signals, environment
and standard streams.
"""

import atexit
import ctypes
import inspect
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.preloaded.fork_server import MAX_REQUEST_BYTES

_ROOT = Path(__file__).parents[2]
WITHOUT_EXTRAS = str(_ROOT / "tests/without_extras")
"""A directory of modules that hide optional packages, which TensorFlow imports if they are there.

The processes that tests start import TensorFlow in 60 % of the time without these packages, and see
what users see who install tpuserve without extras.
"""
_SERVE_REQUESTS = "from tests.preloaded import fork_server; fork_server.serve_requests()()"
# The constant of Linux's <sys/prctl.h>.
_PR_SET_CHILD_SUBREAPER = 36
# The beginnings of the names of variables that are read before a program begins: by Python, or
# when TensorFlow or jax is imported. Keras sets some of KMP_, which TensorFlow does not read.
_EARLY_VARIABLES = ("GRPC_", "JAX_", "LD_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHON", "TF_")
# Variables with such names that programs read themselves.
_LATE_VARIABLES = ("PYTHONPATH", "TF_CONFIG")
# The first parameters of the private method with which subprocess.Popen starts a process, on all
# supported versions of Python.
_PIPE_ENDS = ["p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"]
_PARAMETERS = [
    *("self", "args", "executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env"),
    *("startupinfo", "creationflags", "shell"),
    *_PIPE_ENDS,
]


_starting = threading.Lock()


class _ForkServer:
    """A fork server that this process has started."""

    def __init__(self, environment: Mapping[str, str], modules: Sequence[str]) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVE_REQUESTS, str(other.fileno()), *modules],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=_ROOT,
                # OpenBLAS would start threads, and then processes could not be forked safely.
                env={
                    **environment,
                    "OPENBLAS_NUM_THREADS": "1",
                    "PYTHONPATH": WITHOUT_EXTRAS,
                },
            )
        assert self._receive_line() == "ready", "the fork server has ended"
        self._lock = threading.Lock()
        atexit.register(self._close)

    @property
    def has_ended(self) -> bool:
        """Whether the process of the fork server has ended."""
        return self._server.poll() is not None

    def fork(
        self, arguments: Sequence[str], environment: Mapping[str, str], cwd: str, streams: list[int]
    ) -> int:
        """Start a process as a child of this process; return its ID.

        Args:
          arguments: the arguments of the Python interpreter.
          environment: the environment variables.
          cwd: the working directory.
          streams: the file descriptors of the standard input, output and error.
        """
        request = {"arguments": list(arguments), "environment": dict(environment), "cwd": cwd}
        message = json.dumps(request).encode()
        assert len(message) <= MAX_REQUEST_BYTES
        with self._lock:
            # Only for the time of the fork: other processes whose parents end belong to the system.
            _set_subreaper(True)
            try:
                socket.send_fds(self._socket, [message], streams)
                return int(self._receive_line())
            finally:
                _set_subreaper(False)

    def _close(self) -> None:
        self._socket.close()
        self._server.wait()

    def _receive_line(self) -> str:
        return self._socket.recv(64).decode().strip()


class PreloadedProcess(subprocess.Popen[str]):
    """A process that runs a Python program, and has TensorFlow imported when the program begins.

    The process also has jax imported, unless PYTHONPATH hides the optional packages.

    The first argument is `sys.executable`. The process is an ordinary one, without TensorFlow, if a
    variable that Python or TensorFlow reads early differs from the variables of the tests, or if an
    option of subprocess.Popen is used that the fork server does not know.
    """

    def _execute_child(self, *arguments: Any, **options: Any) -> None:
        values = dict(zip(_PARAMETERS[1:], arguments, strict=False))
        environment = dict(os.environ) if values["env"] is None else values["env"]
        early = _early_variables(environment)
        is_simple = _is_popen_known() and not _has_other_options(values, arguments)
        if not is_simple or early != _early_variables(os.environ):
            super()._execute_child(*arguments, **options)  # type: ignore[misc]
            return
        interpreter, *rest = values["args"]
        assert interpreter == sys.executable
        ends = values["p2cread"], values["c2pwrite"], values["errwrite"]
        # -1 stands for the stream of this process.
        streams = [number if end == -1 else end for number, end in enumerate(ends)]
        paths = environment.get("PYTHONPATH", "").split(os.pathsep)
        modules = () if WITHOUT_EXTRAS in paths else ("jax",)
        # Let threads that start the first processes at the same time share a fork server.
        with _starting:
            server = _fork_server(os.getpid(), early, modules)
            if server.has_ended:
                _fork_server.cache_clear()
                server = _fork_server(os.getpid(), early, modules)
        self.pid = server.fork(rest, environment, str(values["cwd"] or os.getcwd()), streams)
        self._child_created = True
        self._close_pipe_fds(*map(values.get, _PIPE_ENDS))  # type: ignore[attr-defined]


def run_preloaded(
    arguments: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a Python program with TensorFlow preloaded, and return its result.

    Args:
      arguments: the arguments of the Python interpreter.
      cwd: the working directory. None means that of this process.
      env: the environment variables. None means those of this process.
    """
    command = [sys.executable, *arguments]
    with PreloadedProcess(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=env
    ) as process:
        try:
            output, errors = process.communicate(timeout=900)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _early_variables(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, environment[name])
        for name in sorted(environment)
        if name.startswith(_EARLY_VARIABLES) and name not in _LATE_VARIABLES
    )


@cache
def _fork_server(
    pid: int, early: tuple[tuple[str, str], ...], modules: tuple[str, ...]
) -> _ForkServer:
    """Return a process's fork server for variables that are read early, and for other modules."""
    return _ForkServer({**os.environ, **dict(early)}, modules)


def _has_other_options(values: Mapping[str, Any], arguments: Sequence[Any]) -> bool:
    """Return whether a call of Popen has options beside arguments, streams, `cwd` and `env`."""
    # The argument after the pipes is `restore_signals`, which is always true.
    others = arguments[len(_PARAMETERS) :]
    is_changed = any(option not in (None, -1, False) for option in others)
    return bool(is_changed or values["preexec_fn"] or values["pass_fds"] or values["shell"])


@cache
def _is_popen_known() -> bool:
    parameters = inspect.signature(subprocess.Popen._execute_child).parameters  # type: ignore[attr-defined]
    return list(itertools.islice(parameters, len(_PARAMETERS))) == _PARAMETERS


def _set_subreaper(is_subreaper: bool) -> None:
    """Make this process the parent of the processes below it whose own parents end, or not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(is_subreaper), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")
