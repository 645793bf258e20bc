"""Decides whether TensorFlow's functions for TPU graphs build a graph for the emulated TPU.

An emulated TPU is a CPU that runs the graphs which a program builds for a TPU.
"""

import sys
from types import FrameType

import tensorflow as tf

from tpuserve.devices import TpuSystem, find_emulated_tpu_system
from trainer.tensorflow_internals import tpu_function

# The modules of tpuserve that build TPU graphs.
_OUR_GRAPH_BUILDERS = (
    "trainer.backends.tpu",
    "trainer.infeed",
    "trainer.export",
    "trainer.exporting.strategies",
    "tpuserve.export",
)


def find_active_emulated_tpu() -> TpuSystem | None:
    """Return the emulated TPU for which to build a TPU graph at this point of the program.

    Returns:
      The emulated TPU; None to build the graph as TensorFlow does.
    """
    tpu_system = find_emulated_tpu_system()
    if tpu_system is None or _is_in_tpu_computation() or _is_called_by_our_builders():
        return None
    if tf.compat.v1.executing_eagerly_outside_functions():
        return None
    return tpu_system


def _is_in_tpu_computation() -> bool:
    """Return whether TensorFlow is building the body of a TPU computation at the moment."""
    return tpu_function.get_tpu_context().number_of_shards is not None


def _is_called_by_our_builders() -> bool:
    """Return whether a module of tpuserve that builds TPU graphs is on the call stack."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if any(name == module or name.startswith(f"{module}.") for module in _OUR_GRAPH_BUILDERS):
            return True
        frame = frame.f_back
    return False
