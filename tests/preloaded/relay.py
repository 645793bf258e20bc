"""Stands for a command of a shell, whose program runs in a preloaded process.

    python relay.py SOCKET ARGUMENTS...

SOCKET is the abstract name of a Unix socket, and ARGUMENTS are those of the Python interpreter. The
program has the standard streams, the working directory and the environment of this process,
which passes signals on and ends as the program ends.
"""

import json
import os
import signal
import socket
import sys

_PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def main() -> None:
    """Send the program to the test's process, and wait for its end."""
    name, *arguments = sys.argv[1:]
    request = {"arguments": arguments, "environment": dict(os.environ), "cwd": os.getcwd()}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(f"\0{name}")
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        # An earlier signal ends this process, and so the program.
        for number in _PASSED_ON:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda number, _: connection.sendall(b"%d" % number))
        status = int(connection.recv(64) or -signal.SIGKILL)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
