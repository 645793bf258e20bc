"""Imports TensorFlow without its log lines about missing GPUs and CPU features."""

import contextlib
import importlib
import os
import re
import sys
import threading
from collections.abc import Iterator

from tpuserve.runtime import gc_control

# Matches the log lines to drop. TensorFlow writes them on a machine without a GPU, before
# TF_CPP_MIN_LOG_LEVEL has an effect.
_NOISE = re.compile(
    rb"before absl::InitializeLog|cudart_stub|cuda_platform|cpu_feature_guard|oneDNN"
    rb"|To enable the following instructions"
)


def import_tensorflow() -> None:
    """Import TensorFlow; write its log to standard error without lines about missing GPUs."""
    if "tensorflow" in sys.modules:
        return
    with filtered_log(), gc_control.gc_disabled():
        importlib.import_module("tensorflow")


@contextlib.contextmanager
def filtered_log() -> Iterator[None]:
    """Drop log lines about missing GPUs that are written to standard error in a with block.

    C++ code writes the log directly to file descriptor 2.
    """
    sys.stderr.flush()
    original = os.dup(2)
    pipe_output, pipe_input = os.pipe()
    os.dup2(pipe_input, 2)
    os.close(pipe_input)
    # The thread writes each line at once, so that the last lines before a crash are not lost.
    filtering = threading.Thread(target=_filter_lines, args=(pipe_output, original), daemon=True)
    filtering.start()
    try:
        yield
    finally:
        os.dup2(original, 2)
        # Wait at most one second for the thread that filters the lines: a process that the import
        # has started may keep the pipe open for ever.
        filtering.join(timeout=1)


def _filter_lines(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as lines, os.fdopen(target, "wb", buffering=0) as output:
        for line in lines:
            if not _NOISE.search(line):
                output.write(line)
