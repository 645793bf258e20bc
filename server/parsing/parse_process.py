"""The server's side of a parse process: starts the process, and sends it request bodies."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from server.parsing import messages
from server.parsing.messages import Buffer, Header
from tpuserve import errors
from tpuserve.errors import Code, TpuserveError

_PROGRAM = Path(__file__).with_name("child.py")


class ParseProcess:
    """A process that parses one request body at a time.

    Only one thread at a time may use the object.
    """

    def __init__(self) -> None:
        self._connection, childs_end = socket.socketpair()
        with childs_end:
            self._process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), str(childs_end.fileno())],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                pass_fds=[childs_end.fileno()],
            )

    @property
    def pid(self) -> int:
        """The ID of the process."""
        return self._process.pid

    def call(
        self,
        operation: str,
        buffers: Sequence[Buffer] = (),
        **arguments: object,
    ) -> tuple[Header, list[bytearray]]:
        """Let the process run an operation of `server.parsing.child`, such as parsing a body.

        If the method raises an error that is not a TpuserveError, the caller must close the
        process.
        """
        header = {"operation": operation, **arguments}
        messages.send_message(self._connection, header, buffers)
        answer, results = messages.receive_message(self._connection)
        if "error" in answer:
            error_type: type[TpuserveError] = getattr(errors, answer["error"])
            error = error_type(answer["message"])
            error.code = Code[answer["code"]]
            raise error
        return answer, results

    def kill(self) -> None:
        """Send SIGKILL to the process, and do not wait until the process has ended.

        If another thread is in `call`, that call raises EOFError.
        """
        self._process.kill()

    def close(self) -> None:
        """End the process, and wait until it has ended."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._process.kill()
        self._process.wait()
