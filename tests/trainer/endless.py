"""A process that trains the slope model until it is told to end: MODEL_DIR MAX_STEPS."""

import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

import trainer
from tests.trainer import programs


class Ready(tf.compat.v1.train.SessionRunHook):
    """Says after each loop that it is over; slow enough for a signal to come in between."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        print("loop", flush=True)
        time.sleep(0.01)


if __name__ == "__main__":
    estimator = programs.estimator(Path(sys.argv[1]), save_checkpoints_steps=8)
    estimator.train(programs.ones(), hooks=[Ready()], max_steps=int(sys.argv[2]))
    print("after train", trainer.__name__, flush=True)
