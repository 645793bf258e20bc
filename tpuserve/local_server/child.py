"""Runs a module as a program, and stops the program when the parent process ends.

python -m tpuserve.local_server.child MODULE [ARGUMENT ...]
"""

import os
import runpy
import signal
import sys
import threading


def _stop_at_end_of_input() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
