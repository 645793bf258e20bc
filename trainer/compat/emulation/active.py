"""Decides whether the TPU graph under construction is to be built for the emulated TPU."""

import sys
from types import FrameType

import tensorflow as tf

from tpuserve.devices import TpuSystem, find_tpu_system
from trainer.tensorflow_internals import tpu_function

# The modules of tpuserve that build TPU graphs. The patches of `builders` do not change these
# graphs, because the modules themselves replace the TPU ops, or write the graphs to a SavedModel
# for a real TPU.
_OUR_GRAPH_BUILDERS = (
    "trainer.backends.tpu",
    "trainer.infeed",
    "trainer.export",
    "trainer.exporting.strategies",
    "tpuserve.export",
)


def find_active_emulated_tpu() -> TpuSystem | None:
    """Return the emulated TPU if the caller builds a TPU graph for its own session, else None.

    The result is None if no TPU is emulated. It is also None inside the body of a TPU computation,
    in calls from the modules in `_OUR_GRAPH_BUILDERS`, and in eager programs, which have no
    sessions.
    """
    tpu_system = find_tpu_system()
    if not tpu_system.is_emulated or _is_in_tpu_computation() or _is_called_by_our_builders():
        return None
    if tf.compat.v1.executing_eagerly_outside_functions():
        return None
    return tpu_system


def _is_in_tpu_computation() -> bool:
    """Return whether TensorFlow is building the body of a TPU computation at the moment."""
    return tpu_function.get_tpu_context().number_of_shards is not None


def _is_called_by_our_builders() -> bool:
    """Return whether a module in `_OUR_GRAPH_BUILDERS` is on the call stack."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if any(name == module or name.startswith(f"{module}.") for module in _OUR_GRAPH_BUILDERS):
            return True
        frame = frame.f_back
    return False
