"""Runs a mode of an estimator for long, so that a test can interrupt the process.

Arguments: MODE MODEL_DIR ITERATIONS_PER_LOOP MAX_STEPS LOOPS DEVICE.

MODE is train, evaluate, predict, or leave: the last reads one prediction and then ends the program,
with the generator still open. DEVICE is cpu, emulated or pjrt. After LOOPS training loops the
process waits to be killed; with 0 it never waits. It prints "fed" when the first training loop
takes input, and "loop" after each loop.
"""

import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

import trainer
from tests.trainer import programs
from tests.trainer.backends.tpu import slope
from tests.trainer.execution.endless import Ready


def input_fn() -> Any:
    """Return the Dataset of `programs.ones`; it prints "fed" when its ninth batch is read."""

    def report_batch(count: Any) -> Any:
        if count == 8:
            print("fed\n", end="", flush=True)
        return count

    ones = tf.data.Dataset.zip((programs.ones()(), tf.data.Dataset.range(10**12)))
    return ones.map(
        lambda batch, count: (batch, tf.py_function(report_batch, [count], tf.int64))
    ).map(lambda batch, count: batch)


def main() -> None:
    mode, model_dir, iterations, max_steps, loops, device = sys.argv[1:]
    estimator = programs.estimator(
        Path(model_dir),
        iterations_per_loop=int(iterations),
        save_checkpoints_steps=8,
        use_tpu=device != "cpu",
        train_batch_size=2,
        eval_batch_size=2,
        predict_batch_size=2,
    )
    with slope.tpu(kind=device):
        if mode == "train":
            estimator.train(input_fn, hooks=[Ready(int(loops))], max_steps=int(max_steps))
        elif mode == "evaluate":
            estimator.evaluate(input_fn, steps=int(max_steps))
        elif mode == "predict":
            list(estimator.predict(input_fn))
        else:
            rows = estimator.predict(input_fn)
            next(rows)
            # Put the generator into a reference cycle, so that it exists until the interpreter
            # ends.
            cycle: list[Any] = [rows]
            cycle.append(cycle)
    # Print line and line break in one call: another thread prints as well.
    print(f"after {mode} {trainer.__name__}\n", end="", flush=True)


if __name__ == "__main__":
    main()
