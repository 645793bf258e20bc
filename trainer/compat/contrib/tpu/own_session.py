"""What a program needs that runs a TPU by a session of its own."""

import os
from typing import Any

from tensorflow.compat.v1 import tpu

from tpuserve.devices import EMULATION_VARIABLE
from tpuserve.errors import TpuNotFound


def initialize_system(*arguments: Any, **options: Any) -> Any:
    """The op that starts a TPU: see tf.compat.v1.tpu.initialize_system.

    Raises:
      TpuNotFound: the TPU is an emulated one, which has no such op.
    """
    if os.environ.get(EMULATION_VARIABLE):
        raise TpuNotFound(
            "tf.contrib.tpu.initialize_system starts a TPU for a session of the program's own, "
            "and the emulated TPU is there for TPUEstimator alone. Move what tf.contrib.tpu."
            "rewrite or shard computes into the model_fn of a TPUEstimator, or run the program "
            "on a TPU, without --emulate-tpu."
        )
    return tpu.initialize_system(*arguments, **options)
