"""Trains one model, with TensorFlow 2.15's estimators or with tpuserve's.

    python -m benchmarks.train.program --model=cnn --batch_size=32 --iterations_per_loop=20

The program prints one line of JSON: see `measure_training`. The environment of the program decides
the estimators: those of TensorFlow 2.15, or those that tpuserve supplies to a later TensorFlow.
"""

import argparse
import importlib.metadata
import json
import os
import resource
import sys
import tempfile
import time
from typing import Any

if not importlib.metadata.version("tensorflow").startswith("2.15."):
    import trainer.compat  # noqa: F401

import tensorflow.compat.v1 as tf

from benchmarks.train import census

tpu = tf.estimator.tpu
EXAMPLES = 2_560
CLASSES = 10


def softmax_regression(image: Any) -> Any:
    """Return the logits of a single layer.

    Args:
      image: Shape [n, 784], float32.

    Returns:
      Shape [n, 10], float32.
    """
    return tf.layers.dense(image, CLASSES)


def mlp(image: Any) -> Any:
    """Return the logits of two layers.

    Args:
      image: Shape [n, 784], float32.

    Returns:
      Shape [n, 10], float32.
    """
    return tf.layers.dense(tf.layers.dense(image, 128, activation=tf.nn.relu), CLASSES)


def cnn(image: Any) -> Any:
    """Return the logits of the MNIST CNN of TensorFlow's documentation, without its dropout.

    Args:
      image: Shape [n, 784], float32.

    Returns:
      Shape [n, 10], float32.
    """
    image = tf.reshape(image, [-1, 28, 28, 1])
    conv1 = tf.layers.conv2d(image, 32, 5, padding="same", activation=tf.nn.relu)
    pool1 = tf.layers.max_pooling2d(conv1, 2, 2)
    conv2 = tf.layers.conv2d(pool1, 64, 5, padding="same", activation=tf.nn.relu)
    pool2 = tf.layers.max_pooling2d(conv2, 2, 2)
    dense = tf.layers.dense(tf.reshape(pool2, [-1, 7 * 7 * 64]), 128, activation=tf.nn.relu)
    return tf.layers.dense(dense, CLASSES)


MODELS = {"softmax": softmax_regression, "mlp": mlp, "cnn": cnn}
# The wide and deep model, a canned estimator.
CENSUS = "census"


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Build a training step of the model `params["model"]` with gradient descent."""
    logits = MODELS[params["model"]](features)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    step = tf.train.get_global_step()
    optimizer = tf.train.GradientDescentOptimizer(
        tf.train.exponential_decay(0.05, step, 100_000, 0.96)
    )
    if params["use_tpu"]:
        # Off the TPU, TensorFlow 2.15's optimizer would create an op without a CPU kernel.
        optimizer = tf.tpu.CrossShardOptimizer(optimizer)
    train_op = optimizer.minimize(loss, global_step=step)
    return tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(params: dict[str, Any]) -> Any:
    """Return a Dataset of cached random batches, so that tf.data takes little time.

    The graph draws the batches from a seed. Constants would add megabytes to graph.pbtxt, and the
    start of a run would mostly write that file.
    """
    batch_size = params["batch_size"]

    def draw(number: Any) -> Any:
        image = tf.random.stateless_uniform([batch_size, 784], [1, number], -0.5, 0.5)
        label = tf.random.stateless_uniform([batch_size], [2, number], 0, CLASSES, tf.int32)
        return image, label

    dataset = tf.data.Dataset.range(EXAMPLES // batch_size).map(draw)
    return dataset.cache().repeat().prefetch(2)


class Stopwatch(tf.train.SessionRunHook):  # type: ignore[misc]
    """Measures the steps per second in a window after a warm-up, and then stops the training.

    Attributes:
      first_run: The time.monotonic() after the first session.run, or None.
    """

    def __init__(self, warmup_steps: int, seconds: float) -> None:
        """Create the hook.

        Args:
          warmup_steps: The number of steps before the window.
          seconds: The length of the window.
        """
        self._warmup_steps = warmup_steps
        self._seconds = seconds
        self.first_run: float | None = None
        self._window_start: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    def before_run(self, run_context: Any) -> Any:
        """Request the global step."""
        return tf.train.SessionRunArgs(tf.train.get_global_step())

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Record the global step and the time of a session.run."""
        now, step = time.monotonic(), int(run_values.results)
        if self.first_run is None:
            self.first_run = now
        if self._window_start is None and step >= self._warmup_steps:
            self._window_start = (step, now)
        self._last = (step, now)
        if self._window_start is not None and now - self._window_start[1] >= self._seconds:
            run_context.request_stop()

    def steps_per_second(self) -> float | None:
        """Return the speed within the window, or None if the training ended before the window."""
        if self._window_start is None or self._last is None or self._last == self._window_start:
            return None
        (opened_step, opened), (last_step, last) = self._window_start, self._last
        return (last_step - opened_step) / (last - opened)


def measure_training(flags: argparse.Namespace) -> dict[str, Any]:
    """Train once, and return the measurements.

    Returns:
      steps_per_second and ms_per_step of the window; first_step_seconds, from the start of the
      process to the end of the first session.run; peak_memory_mb of the process; the versions
      tensorflow and python.
    """
    tf.logging.set_verbosity(tf.logging.INFO)
    options = {} if flags.compile is None else {"compile_emulated": flags.compile == "yes"}
    settings = {}
    if flags.compile_step is not None:
        settings["compile_step"] = {"yes": True, "no": False, "auto": "auto"}[flags.compile_step]
    with tempfile.TemporaryDirectory() as model_dir:
        config = tpu.RunConfig(
            tpu.TPUConfig(iterations_per_loop=flags.iterations_per_loop, **options),
            model_dir=model_dir,
            **settings,
        )
        batches: Any = input_fn
        if flags.model == CENSUS:
            estimator = census.create_estimator(config)
            batches = census.input_fn(flags.batch_size)
        else:
            estimator = tpu.TPUEstimator(
                model_fn,
                config=config,
                params={"model": flags.model},
                use_tpu=flags.use_tpu,
                train_batch_size=flags.batch_size,
            )
        stopwatch = Stopwatch(flags.warmup_steps, flags.seconds)
        estimator.train(batches, hooks=[stopwatch], max_steps=flags.max_steps)
    speed = stopwatch.steps_per_second()
    started, first_run = flags.started, stopwatch.first_run
    return {
        "steps_per_second": speed,
        "ms_per_step": 1000 / speed if speed else None,
        "first_step_seconds": first_run - started if started and first_run else None,
        "peak_memory_mb": peak_memory_mb(),
        "tensorflow": tf.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def peak_memory_mb() -> float:
    """Return the peak resident memory of this process in MiB."""
    # ru_maxrss includes the parent's memory before the exec. VmHWM of Linux does not.
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 1024
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def main() -> None:
    """Parse the flags, train, and print the measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=[*MODELS, CENSUS], default="cnn")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--iterations_per_loop", type=int, default=20)
    parser.add_argument("--warmup_steps", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3, help="length of the window in seconds")
    parser.add_argument("--max_steps", type=int)
    parser.add_argument("--use_tpu", action="store_true")
    parser.add_argument("--compile", choices=["yes", "no"], help="emulated TPU only")
    parser.add_argument("--compile_step", choices=["yes", "no", "auto"], help="tpuserve only")
    parser.add_argument(
        "--started", type=float, help="time.monotonic() before the start of this process"
    )
    print(json.dumps(measure_training(parser.parse_args())))


if __name__ == "__main__":
    main()
