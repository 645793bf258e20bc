"""XLA's threads have the priority of requests, even if a load starts them."""

import os
import sys
from importlib import metadata

import pytest

from tests.preloaded.process import run_preloaded

pytestmark = pytest.mark.slow

PROGRAM = """
import os, sys, threading, time
import numpy as np
import tensorflow as tf
from tpuserve import loader
from tpuserve.devices import TpuSystem

class Compiled(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def serve(self, x):
        return {"y": tf.function(lambda x: x + 1, jit_compile=True)(x)}

model = Compiled()
tf.saved_model.save(model, sys.argv[1], signatures=model.serve)

def last(work):
    found = []
    def run():
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        found.append(work())
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]

loaded = loader.load(sys.argv[1], hardware=TpuSystem(), executor=last)
print(last(lambda: loaded.run("serving_default", {"x": np.array([2], np.float32)}))["y"][0])

def nice_values(name):
    values = set()
    for thread_id in os.listdir("/proc/self/task"):
        try:
            stat = open(f"/proc/self/task/{thread_id}/stat").read()
        except (FileNotFoundError, ProcessLookupError):
            # The kernel removes a thread some time after Python has joined the thread.
            continue
        thread_name, _, rest = stat.partition("(")[2].rpartition(")")
        if thread_name == name:
            values.add(rest.split()[16])
    return values

# A thread has the name of its creator until the thread first runs and names itself.
deadline = time.monotonic() + 300
while not nice_values("tf_XLAEigen") and time.monotonic() < deadline:
    time.sleep(0.01)
print(*nice_values("tf_XLAEigen"))
"""


@pytest.mark.skipif(
    metadata.version("tensorflow").startswith("2.20."), reason="TensorFlow 2.20 names no threads"
)
@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own there")
def test_xla_threads_keep_the_priority_of_requests_if_a_load_starts_them(tmp_path: object) -> None:
    result = run_preloaded(["-c", PROGRAM, str(tmp_path)])
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["3.0", str(os.nice(0))]
