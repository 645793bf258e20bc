"""`import trainer.compat`, as the first line of a program, has it run as it was written.

    import trainer.compat
    import tensorflow as tf

tf.estimator, tf.contrib and what else programs of the TPUEstimator era name are there; a program
that is written for TensorFlow 1 gets its names and behaviour. `tpuserve run SCRIPT.py` does the
same for a program that is left as it is.
"""

import sys
from types import FrameType
from typing import Any

from trainer.compat.source import program as programs


def _importer() -> dict[str, Any]:
    """The globals of the module that imports this one."""
    frame: FrameType | None = sys._getframe(2)
    while frame and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame.f_globals if frame else {}


# The commands and the tests import parts of this package too: they are no programs to change.
_program = programs.find_running_program(_importer())
if _program is not None:
    from trainer.compat import install

    install.install(_program, **install.read_tf1_variable())
