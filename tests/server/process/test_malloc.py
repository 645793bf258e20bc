"""The operating system gets back the memory of unloaded models."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
def test_a_model_that_comes_and_goes_leaves_no_memory_behind() -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.serve.lifecycle.memory",
        "--megabytes=80",
        "--cycles=3",
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    sizes = [float(line.split()[2]) for line in output.splitlines() if line.startswith("cycle")]
    assert len(sizes) == 3
    # Less than half of one model's memory is left. If unloading freed nothing, the two later cycles
    # would leave twice one model's memory.
    assert sizes[-1] - sizes[0] < 40


# A program that loads three models at a time: with one at a time, each cycle could reuse the memory
# that the previous cycle has left behind, and hide the loss.
_LOAD_THREE = """
from server.process import malloc
malloc.configure_malloc()
import tempfile
from pathlib import Path
from benchmarks.serve.lifecycle.memory import save_model
from server.servables.saved_model_loader import SavedModelLoader
from server.config.settings import Settings

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

with tempfile.TemporaryDirectory() as base:
    small, large = save_model(Path(base) / "1", 1), save_model(Path(base) / "2", 80)
    load = SavedModelLoader(Settings(Path(base)))
    load(small).close()
    malloc.trim_heap()
    before = resident()
    models = [load(large) for _ in range(3)]
    during = resident()
    while models:
        models.pop().close()
    malloc.trim_heap()
    print(before, during, resident())
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")
def test_memory_of_models_is_the_systems_again_once_they_are_unloaded() -> None:
    command = [sys.executable, "-c", _LOAD_THREE]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    before, during, after = map(int, output.split())
    assert during - before > 200
    assert after - before < 60


# A program that allocates blocks in a thread, so that glibc takes them from a heap that it cannot
# trim.
_TAKE_AND_FREE = """
import ctypes
import threading
from pathlib import Path
from server.process import malloc

malloc.configure_malloc()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p

def resident():
    # Counted page by page: statm lags behind on some kernels.
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("Rss:"))

def take_and_free():
    with malloc.large_tensor_allocation(), malloc.large_tensor_allocation():
        blocks = [ctypes.c_void_p(libc.malloc(8 << 20)) for _ in range(5)]
        for block in blocks:
            ctypes.memset(block, 1, 8 << 20)
        during.append(resident())
        for block in blocks:
            libc.free(block)

before, during = resident(), []
thread = threading.Thread(target=take_and_free)
thread.start()
thread.join()
malloc.trim_heap()
print(before, *during, resident())
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux's /proc")
def test_what_a_model_takes_in_any_thread_is_the_systems_once_it_is_freed() -> None:
    command = [sys.executable, "-c", _TAKE_AND_FREE]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    before, during, after = map(int, output.split())
    assert during - before >= 40
    assert after - before < 8
