"""Trains the slope model, until a signal ends the process: MODEL_DIR MAX_STEPS [LOOPS].

If LOOPS is given, the process waits to be killed after this number of training loops.
"""

import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

import trainer
from tests.trainer import programs


class Ready(tf.compat.v1.train.SessionRunHook):
    """Prints "loop" after each training loop, and sleeps 10 ms, so that a signal can come."""

    def __init__(self, loops: int = 0) -> None:
        """Set the number of loops after which the process waits to be killed; 0 never waits."""
        self._loops_left = loops

    def after_run(self, run_context: Any, run_values: Any) -> None:
        # Print text and line break in one call: another thread may print as well.
        print("loop\n", end="", flush=True)
        self._loops_left -= 1
        time.sleep(0.01 if self._loops_left else 600)


if __name__ == "__main__":
    estimator = programs.estimator(Path(sys.argv[1]), save_checkpoints_steps=8)
    ready = Ready(*map(int, sys.argv[3:]))
    estimator.train(programs.ones(), hooks=[ready], max_steps=int(sys.argv[2]))
    print("after train", trainer.__name__, flush=True)
