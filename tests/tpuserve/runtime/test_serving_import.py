"""A server imports TensorFlow without Keras, and without blocking its other threads."""

import subprocess
import sys

import pytest


def run_program(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_tensorflow_works_and_unused_packages_stay_unimported() -> None:
    program = """
import sys
from tpuserve.runtime import serving_import
serving_import.import_tensorflow_for_serving()
import tensorflow as tf
print({"keras", "tf_keras", "jax"} & {name.partition(".")[0] for name in sys.modules})
print(tf.add(1, 2).numpy(), tf.keras.Sequential().name)
"""
    assert run_program(program) == "set()\n3 sequential\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="loads Linux's libraries")
def test_other_threads_run_while_the_library_is_loaded() -> None:
    program = """
import threading, time
from tpuserve.runtime import serving_import
beats, is_done = 0, False
def beat():
    global beats
    while not is_done:
        beats += 1
        time.sleep(0.001)
thread = threading.Thread(target=beat)
thread.start()
before = beats
serving_import._load_library()
print("tensorflow" in open("/proc/self/maps").read(), beats - before > 10)
is_done = True
thread.join()
"""
    assert run_program(program) == "True True\n"
