"""When TensorFlow's builders of TPU graphs build for the emulated TPU."""

import sys
from types import FrameType

import tensorflow as tf

from tpuserve.devices import TpuSystem, find_tpu_system
from trainer.tensorflow_internals import tpu_function

# These build graphs for a TPU and lower them, or write them into an export, as a whole.
_BUILD_THEMSELVES = (
    "trainer.backends.tpu",
    "trainer.infeed",
    "trainer.export",
    "trainer.exporting.strategies",
    "tpuserve.export",
)


def find_active_emulated_tpu() -> TpuSystem | None:
    """The emulated TPU, if what is built now is for a session of the program's own."""
    hardware = find_tpu_system()
    if not hardware.is_emulated or _is_inside_of_computation() or _is_built_for_us():
        return None
    # There are no sessions.
    if tf.compat.v1.executing_eagerly_outside_functions():
        return None
    return hardware


def _is_inside_of_computation() -> bool:
    return tpu_function.get_tpu_context().number_of_shards is not None


def _is_built_for_us() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if any(name == each or name.startswith(f"{each}.") for each in _BUILD_THEMSELVES):
            return True
        frame = frame.f_back
    return False
