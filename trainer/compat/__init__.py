"""Lets a program written for TPUEstimator run unchanged on today's TensorFlow.

Import this package in the first line of the program:

    import trainer.compat
    import tensorflow as tf

The import supplies tf.estimator, tf.contrib and the other symbols that such programs use and that
TensorFlow has removed. A program that is written for TensorFlow 1 gets the symbols and the
behaviour of TensorFlow 1. The command `tpuserve run SCRIPT.py` does the same without a change to
the program.
"""

import sys
from types import FrameType
from typing import Any

from trainer.compat.source import user_program as programs


def _importer_globals() -> dict[str, Any]:
    """Return the global variables of the module whose import statement imports this package."""
    frame: FrameType | None = sys._getframe(2)
    while frame and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame.f_globals if frame else {}


# The user's program that imports this package; None if a tpuserve command, a library or a test
# imports the package. The import changes TensorFlow only for a user's program.
_program = programs.find_running_program(_importer_globals())
if _program is not None:
    from trainer.compat import install

    install.install(_program, **install.read_tf1_variable())
