"""Runs `tpuserve serve` in a child process, which stops when its parent process ends."""

import os
import signal
import sys
import threading

from tpuserve.cli import main


def _stop_at_end_of_input() -> None:
    """Wait for the end of standard input, then stop the server with SIGTERM.

    Standard input is a pipe from the parent process. The system closes the pipe when the parent
    ends, even if the parent is killed.
    """
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    main(["serve", *sys.argv[1:]])
