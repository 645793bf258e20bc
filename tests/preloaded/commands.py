"""Runs the commands of shells, such as `python` and `tpuserve`, in preloaded processes.

A shell finds the commands first on its path. Each command is a relay, which sends its arguments to
this process; a thread of this process starts the program and reports its end.
"""

import json
import os
import shlex
import socket
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.preloaded import relay
from tests.preloaded.fork_server import MAX_REQUEST_BYTES
from tests.preloaded.process import PreloadedProcess

COMMANDS = {
    "python": "",
    "tpuserve": "-m tpuserve",
    "tpuserve-model-server": "-c 'from server.command import main; main()'",
}
"""Name of a command → the arguments of the Python interpreter before those of the command."""


@contextmanager
def preloaded_commands(directory: Path) -> Iterator[None]:
    """Create executable files for `COMMANDS`, which work inside of a with block.

    Args:
      directory: The directory of the files, for the variable PATH of shells.
    """
    directory.mkdir(parents=True, exist_ok=True)
    # A name without a file: the paths of Unix sockets have at most 107 characters.
    name = f"tpuserve-tests-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        run = shlex.join([sys.executable, "-IS", relay.__file__, name])
        for command, arguments in COMMANDS.items():
            file = directory / command
            file.write_text(f'#!/bin/sh\nexec {run} {arguments} "$@"\n')
            file.chmod(0o755)
        accepting = threading.Thread(target=_accept, args=(listener,), daemon=True)
        accepting.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()


def _accept(listener: socket.socket) -> None:
    # The end of the with block ends `accept` with an error.
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_run, args=(connection,), daemon=True).start()


def _run(connection: socket.socket) -> None:
    """Run the program of a relay, pass on the signals of the relay, and report the exit status."""
    with connection:
        message, streams, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
        if not message:
            # The relay has been killed before it sent its program.
            return
        request = json.loads(message)
        try:
            process = _start(request["arguments"], request["environment"], request["cwd"], streams)
        finally:
            for stream in streams:
                os.close(stream)
        passing = threading.Thread(target=_pass_signals, args=(connection, process), daemon=True)
        passing.start()
        status = process.wait()
        # The relay may have been killed.
        with suppress(OSError):
            connection.sendall(b"%d" % status)
            connection.shutdown(socket.SHUT_RDWR)
        passing.join()


def _start(
    arguments: Sequence[str], environment: Mapping[str, str], cwd: str, streams: Sequence[int]
) -> PreloadedProcess:
    stdin, stdout, stderr = streams
    return PreloadedProcess(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )


def _pass_signals(connection: socket.socket, process: PreloadedProcess) -> None:
    """Send signals to a process as a relay asks for them; kill the process if the relay ends."""
    with suppress(OSError):
        while message := connection.recv(64):
            process.send_signal(int(message))
    process.kill()
