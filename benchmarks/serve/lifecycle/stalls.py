"""Runs the command `tpuserve` with a thread that records stalls of the Python interpreter.

    python -m benchmarks.serve.lifecycle.stalls FILE [--without PART]... serve --model_base_path=...

Each line of FILE contains the end and the length of a stall, in seconds of the system's monotonic
clock. A stall occurs when a call holds Python's global interpreter lock, or when the machine has no
processor time for the thread. The stalls of an idle server show the share of the machine.

--without switches off one part of the loading of a version, for the ablations in
docs/performance.md.
"""

import dataclasses
import gc
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tpuserve.cli import main

_TICK_SECONDS = 0.002
_LEAST_SECONDS = 0.001


def record_stalls(path: Path) -> None:
    """Sleep repeatedly, and record the seconds by which each sleep exceeded its duration."""
    with path.open("w", buffering=1) as file:
        while True:
            due = time.perf_counter() + _TICK_SECONDS
            time.sleep(_TICK_SECONDS)
            late = time.perf_counter() - due
            if late > _LEAST_SECONDS:
                file.write(f"{due + late:.6f} {late:.6f}\n")


def import_graph_at_once() -> None:
    """Import each graph in one call of TensorFlow instead of in segments."""
    from tpuserve.graph.segments import GraphSegment
    from tpuserve.runtime.session import graph_import

    import_segments = graph_import.import_graph

    def import_graph(graph: Any, plan: Any) -> Any:
        # The concatenation of serialised messages is the serialisation of the merged message.
        content = b"".join(segment.content for segment in plan.segments)
        names = {name for segment in plan.segments for name in segment.retained_nodes}
        merged = GraphSegment(content, retained_nodes=tuple(sorted(names)))
        return import_segments(graph, dataclasses.replace(plan, segments=(merged,)))

    graph_import.import_graph = import_graph


def plan_with_tensorflow() -> None:
    """Make the subprocess that plans a load import TensorFlow instead of `tensorflow_stub`."""
    from tpuserve.runtime import subprocess_prepare

    *command, program = subprocess_prepare._COMMAND
    program = program.replace("main()\n", "main(use_stub=False)\n")
    subprocess_prepare._COMMAND = (*command, program)


def collect_all_objects() -> None:
    """Make full garbage collections scan the objects of imported modules as well."""
    gc.freeze = lambda: None


def keep_malloc_thresholds() -> None:
    """Leave the thresholds of glibc's malloc as they are, while models load and between loads."""
    from server.process import malloc

    malloc._set_thresholds = lambda mmap_bytes, trim_bytes: None


PARTS: dict[str, Callable[[], None]] = {
    "freeze": collect_all_objects,
    "malloc": keep_malloc_thresholds,
    "segments": import_graph_at_once,
    "stub": plan_with_tensorflow,
}


if __name__ == "__main__":
    file, *arguments = sys.argv[1:]
    while arguments[0] == "--without":
        PARTS[arguments[1]]()
        arguments = arguments[2:]
    threading.Thread(target=record_stalls, args=(Path(file),), daemon=True).start()
    main(arguments)
