"""A run of a one-variable model on a TPU, whose every number can be worked out.

y = w x with w from 0; for x = 1 and labels of 1 the loss is (1 - w)^2 / 2, and with a rate of 0.5
each step halves 1 - w.
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
    """The loss of each step."""
    return [0.25**step / 2 for step in range(steps)]


def model_fn(
    more: Callable[..., dict[str, Any]] = lambda **of_step: {}, kind: Any = None
) -> Callable[..., Any]:
    """The model_fn; `more` takes what a step has and gives further arguments of its spec."""

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
    """An input_fn of x = y = 1; of so many batches, or without end."""

    def input_fn(params: Any) -> Any:
        batch = tf.ones([params["batch_size"], 1])
        return tf.data.Dataset.from_tensors(({"x": batch}, batch)).repeat(batches)

    return input_fn


def estimator(
    model_dir: Path,
    more: Callable[..., dict[str, Any]] = lambda **of_step: {},
    *,
    kind: Any = None,
    tpu_config: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> trainer.TPUEstimator:
    """An estimator of the model, for batches of 4 rows."""
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


# Which TPU the runs have, "emulated" or "pjrt"; the fixture `tpu_kind` sets it.
tpu_kind = "emulated"


def tpu(
    cores: int = 2, *, compiled: bool = False, kind: str | None = None
) -> AbstractContextManager[Any]:
    """The TPU that these runs have: an emulated one, or PJRT devices of the CPU."""
    if (kind or tpu_kind) == "pjrt":
        return pjrt_devices(cores)
    return tpuserve.emulated_tpu(cores, compiled=compiled)
