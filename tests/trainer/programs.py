"""The slope model, a small program whose results can be computed by hand, and its files."""

import functools
import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

import trainer

v1 = tf.compat.v1


def slope_model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Build the model y = w x with w = 0 at first; for x = y = 1 and rate 0.5 steps halve 1 - w."""
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    y = features["x"] * w
    if mode == trainer.ModeKeys.PREDICT:
        return trainer.TPUEstimatorSpec(mode, predictions={"y": y})
    loss = tf.reduce_mean((y - labels) ** 2, name="squared_error") / 2.0
    if mode == trainer.ModeKeys.EVAL:
        metrics = (lambda y, labels: {"mean_y": v1.metrics.mean(y)}), [y, labels]
        return trainer.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
    v1.summary.scalar("slope", w)
    optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(params["rate"]))
    train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def ones(batches: int | None = None, batch_size: int = 2) -> Callable[..., Any]:
    """Return an input_fn with x = y = 1; `batches` is the number of batches, None for no end."""

    def input_fn() -> Any:
        batch = tf.ones([batch_size, 1])
        return tf.data.Dataset.from_tensors(({"x": batch}, batch)).repeat(batches)

    return input_fn


def estimator(
    model_dir: Path, *, iterations_per_loop: int = 4, rate: float = 0.5, **options: Any
) -> trainer.TPUEstimator:
    """Return an estimator of the slope model, by default on the CPU."""
    settings = {option: options.pop(option) for option in list(options) if option in _CONFIG_FIELDS}
    config = trainer.RunConfig(
        trainer.TPUConfig(iterations_per_loop), model_dir=str(model_dir), **settings
    )
    arguments = {"model_fn": slope_model_fn, "use_tpu": False, **options}
    model_fn = arguments["model_fn"]
    is_without = callable(model_fn) and "params" not in inspect.signature(model_fn).parameters
    params = None if is_without else {"rate": rate}
    return trainer.TPUEstimator(**{"params": params, **arguments}, config=config)


def write_trained(model_dir: Path, steps: int) -> trainer.TPUEstimator:
    """Write the files that some steps of training leave, without summaries; return an estimator.

    Only the first call with a number of steps trains.
    """
    files = _train(steps)
    model_dir.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (model_dir / name).write_bytes(content)
    paths = [str(model_dir / f"model.ckpt-{step}") for step in (0, steps)]
    v1.train.update_checkpoint_state(str(model_dir), paths[-1], paths)
    return estimator(model_dir)


@functools.cache
def _train(steps: int) -> dict[str, bytes]:
    """Train the model; return the files of its checkpoints and graph: name → content."""
    with tempfile.TemporaryDirectory() as directory:
        estimator(Path(directory)).train(ones(), max_steps=steps)
        paths = [*Path(directory).glob("model.ckpt-*"), Path(directory, "graph.pbtxt")]
        return {path.name: path.read_bytes() for path in paths}


_CONFIG_FIELDS = {"save_summary_steps", "save_checkpoints_steps", "log_step_count_steps"}


def variable(model_dir: Path, name: str) -> Any:
    """Return the value of a variable in the newest checkpoint."""
    return tf.train.load_checkpoint(str(model_dir)).get_tensor(name)


def scalars(directory: Path) -> dict[str, dict[int, float]]:
    """Return the scalar summaries of a directory: tag → step → value."""
    series: dict[str, dict[int, float]] = {}
    for path in sorted(directory.glob("events.out.tfevents.*")):
        for event in v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                series.setdefault(value.tag, {})[event.step] = value.simple_value
    return series
