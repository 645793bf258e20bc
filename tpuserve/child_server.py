"""Runs `tpuserve serve` for the process that has started it, and stops with that process."""

import os
import signal
import sys
import threading

from tpuserve.cli import main


def _stop_at_end_of_input() -> None:
    """Stop the server when the parent process, which holds the other end of the pipe, has ended."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    main(["serve", *sys.argv[1:]])
