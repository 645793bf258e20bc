"""A process that trains the slope model until it is told to end: MODEL_DIR MAX_STEPS [LOOPS].

After LOOPS of them it waits to be killed, if they are given.
"""

import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

import trainer
from tests.trainer import programs


class Ready(tf.compat.v1.train.SessionRunHook):
    """Says after each loop that it is over; slow enough for a signal to come in between."""

    def __init__(self, loops: int = 0) -> None:
        """After so many loops it waits to be killed, however late that comes; never at 0."""
        self._loops_left = loops

    def after_run(self, run_context: Any, run_values: Any) -> None:
        # In one piece: another thread may say something too.
        print("loop\n", end="", flush=True)
        self._loops_left -= 1
        time.sleep(0.01 if self._loops_left else 600)


if __name__ == "__main__":
    estimator = programs.estimator(Path(sys.argv[1]), save_checkpoints_steps=8)
    ready = Ready(*map(int, sys.argv[3:]))
    estimator.train(programs.ones(), hooks=[ready], max_steps=int(sys.argv[2]))
    print("after train", trainer.__name__, flush=True)
