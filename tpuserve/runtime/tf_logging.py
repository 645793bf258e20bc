"""TensorFlow imported without what it says about hardware that nobody asked for."""

import importlib
import os
import re
import sys
import threading

from tpuserve.runtime import gc_control

# On a machine without a GPU the runtime says so before its log level counts.
_NOISE = re.compile(
    rb"before absl::InitializeLog|cudart_stub|cuda_platform|cpu_feature_guard|oneDNN"
    rb"|To enable the following instructions"
)


def import_tensorflow() -> None:
    """Imports TensorFlow; on standard error comes all that it says but for known noise.

    The noise is written by C++ straight to file descriptor 2, so that is what leads through a
    filter while the import runs.
    """
    if "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    original = os.dup(2)
    filtered, unfiltered = os.pipe()
    os.dup2(unfiltered, 2)
    os.close(unfiltered)
    # A thread passes lines on as they come: what is said before a crash must not be lost.
    passing = threading.Thread(target=_pass_on, args=(filtered, original), daemon=True)
    passing.start()
    try:
        with gc_control.gc_disabled():
            importlib.import_module("tensorflow")
    finally:
        os.dup2(original, 2)
        # A process that the import has started may hold the other end open for ever.
        passing.join(timeout=1)


def _pass_on(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as lines, os.fdopen(target, "wb", buffering=0) as passed:
        for line in lines:
            if not _NOISE.search(line):
                passed.write(line)
