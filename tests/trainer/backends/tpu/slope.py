"""The slope model, which has one variable, on a TPU: all its numbers can be computed by hand.

The model is y = w x, and w starts at 0. With x = 1 and the label 1 the loss is (1 - w)^2 / 2. With
a learning rate of 0.5 each step halves 1 - w.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tensorflow as tf

import tpuserve
import trainer
from tests.pjrt_devices import pjrt_devices

v1 = tf.compat.v1


def losses(steps: int) -> list[float]:
    """Return the loss of each step of a training that starts at w = 0."""
    return [0.25**step / 2 for step in range(steps)]


def model_fn(
    more: Callable[..., dict[str, Any]] = lambda **step_values: {}, kind: Any = None
) -> Callable[..., Any]:
    """Build the model_fn of the slope model.

    Args:
      more: takes mode, w, y, loss and features by keyword; returns further arguments of the spec.
      kind: the class of the spec; None for TPUEstimatorSpec.
    """

    def build(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        y = features["x"] * w
        if mode == trainer.ModeKeys.PREDICT:
            result = more(mode=mode, w=w, y=y, loss=None, features=features)
            predictions = {"y": y, "x": features["x"], **result.pop("predictions", {})}
            return trainer.TPUEstimatorSpec(mode, predictions=predictions, **result)
        loss = tf.reduce_mean((y - labels) ** 2 / 2.0, name="squared_error")
        optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.5))
        step = v1.train.get_global_step()
        train_op = optimizer.minimize(loss, step) if mode == trainer.ModeKeys.TRAIN else None
        result = more(mode=mode, w=w, y=y, loss=loss, features=features)
        make = kind or trainer.TPUEstimatorSpec
        return make(mode, **{"loss": loss, "train_op": train_op, **result})

    return build


def ones(batches: int | None = None) -> Callable[..., Any]:
    """Return an input_fn with x = y = 1; `batches` is the number of batches, None for no end."""

    def input_fn(params: Any) -> Any:
        batch = tf.ones([params["batch_size"], 1])
        return tf.data.Dataset.from_tensors(({"x": batch}, batch)).repeat(batches)

    return input_fn


def estimator(
    model_dir: Path,
    more: Callable[..., dict[str, Any]] = lambda **step_values: {},
    *,
    kind: Any = None,
    tpu_config: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> trainer.TPUEstimator:
    """Return an estimator of the slope model, with global batches of 4 rows."""
    settings = {"iterations_per_loop": 4, **(tpu_config or {})}
    return trainer.TPUEstimator(
        model_fn(more, kind),
        config=trainer.RunConfig(
            trainer.TPUConfig(**settings), model_dir=str(model_dir), **(config or {})
        ),
        train_batch_size=4,
        eval_batch_size=4,
        predict_batch_size=4,
        **options,
    )


# The kind of TPU that `tpu` returns, "emulated" or "pjrt"; the fixture `tpu_kind` sets it.
tpu_kind = "emulated"


def tpu(
    cores: int = 2, *, compiled: bool = False, kind: str | None = None
) -> AbstractContextManager[Any]:
    """Return a context with a TPU: an emulated one, or PJRT devices of the CPU."""
    if (kind or tpu_kind) == "pjrt":
        return pjrt_devices(cores)
    return tpuserve.emulated_tpu(cores, compiled=compiled)
