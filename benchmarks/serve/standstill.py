"""The command `tpuserve`, with a thread that writes down when Python stood still.

    python -m benchmarks.serve.standstill FILE serve --model_base_path=...

Each line is when a standstill ended and how long it was, in seconds of the system's monotonic
clock. What holds Python's lock is seen by it whatever else the machine does, and a machine that
has no time for the thread is seen as well: compare with a time when nothing is loaded.
"""

import sys
import threading
import time
from pathlib import Path

from tpuserve.cli import main

_TICK_SECONDS = 0.002
_LEAST_SECONDS = 0.001


def watch(path: Path) -> None:
    """Wakes up again and again, and writes down how late that was."""
    with path.open("w", buffering=1) as file:
        while True:
            due = time.perf_counter() + _TICK_SECONDS
            time.sleep(_TICK_SECONDS)
            late = time.perf_counter() - due
            if late > _LEAST_SECONDS:
                file.write(f"{due + late:.6f} {late:.6f}\n")


if __name__ == "__main__":
    threading.Thread(target=watch, args=(Path(sys.argv[1]),), daemon=True).start()
    main(sys.argv[2:])
