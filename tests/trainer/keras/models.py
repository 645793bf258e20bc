"""Keras models of both kinds, each with its twin as an estimator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import tpuserve
import trainer
from tests.trainer.programs import scalars

KINDS = [keras, tf_keras]

ROWS = 8
_random = np.random.RandomState(0)
X = _random.randn(6 * ROWS, 4).astype("float32")
Y = _random.randint(0, 3, 6 * ROWS).astype("int32")


def batches(x: Any = X, y: Any = Y, weights: Any = None, rows: int = ROWS) -> Any:
    """A Dataset of whole batches, in order."""
    parts = (x, y) if weights is None else (x, y, weights)
    return tf.data.Dataset.from_tensor_slices(parts).batch(rows, drop_remainder=True)


def dense(kind: Any, optimizer: Any = "sgd", **compiled: Any) -> Any:
    """Four features, three classes; the same weights in both kinds and at each call."""
    model = kind.Sequential(
        [
            kind.layers.Input((4,)),
            kind.layers.Dense(5, activation="tanh"),
            kind.layers.Dense(3),
        ]
    )
    return with_weights(compiled_model(kind, model, optimizer, **compiled))


def compiled_model(kind: Any, model: Any, optimizer: Any = "sgd", **compiled: Any) -> Any:
    """The model, compiled with a loss for classes, if nothing else is said."""
    loss = kind.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(**{"optimizer": optimizer, "loss": loss, **compiled})
    return model


def with_weights(model: Any) -> Any:
    """The model with weights that depend on their shapes alone."""
    random = np.random.RandomState(1)
    values = [
        random.uniform(0.1, 0.9, each.shape) - 0.5 * (each.ndim > 1) for each in model.get_weights()
    ]
    model.set_weights(values)
    return model


def estimator(model: Any, model_dir: Path, **options: Any) -> Any:
    """The model as an estimator; on the CPU, if nothing else is said."""
    config = trainer.RunConfig(
        trainer.TPUConfig(iterations_per_loop=1), save_summary_steps=1, log_step_count_steps=1
    )
    sizes = dict.fromkeys(("train_batch_size", "eval_batch_size", "predict_batch_size"), ROWS)
    return trainer.model_to_tpu_estimator(
        model, model_dir=str(model_dir), config=config, **{"use_tpu": False, **sizes, **options}
    )


def of(dataset: Callable[..., Any]) -> Callable[..., Any]:
    """An input_fn of a dataset whose batches have as many rows as are asked for."""
    return lambda params: dataset(rows=params["batch_size"])


def train(model: Any, model_dir: Path, cores: int, dataset: Any = batches, **options: Any) -> Any:
    """An estimator that has trained one epoch; on no cores, on the CPU."""
    made = estimator(model, model_dir, use_tpu=cores > 0, **options)
    with emulated(cores):
        made.train(of(dataset), steps=sum(1 for _ in dataset()))
    return made


def emulated(cores: int, *, compiled: bool = False) -> Any:
    """An emulated TPU; one of a core where none is wanted, which nobody asks for then."""
    return tpuserve.emulated_tpu(cores=cores or 1, compiled=compiled)


def losses(model_dir: Path) -> list[float]:
    """The loss of each step that an estimator has made."""
    return [value for _, value in sorted(scalars(model_dir)["loss"].items())]


def fit(kind: Any, model: Any, dataset: Any = batches, **options: Any) -> list[float]:
    """The loss of each step of model.fit over one epoch."""
    found: list[float] = []

    class Record(kind.callbacks.Callback):
        """Takes the mean of all batches apart again."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            found.append(logs["loss"] * (batch + 1) - sum(found))

    model.fit(dataset(), verbose=0, shuffle=False, callbacks=[Record()], **options)
    return found


def state(model: Any) -> list[Any]:
    """All values of a model and of its optimizer."""
    variables = model.optimizer.variables
    slots = variables() if callable(variables) else variables
    own = [*model.get_weights(), *(each.numpy() for each in slots)]
    return [np.asarray(each, "float64") for each in own]


def assert_same(model: Any, other: Any, tolerance: float = 1e-5) -> None:
    """Weights and optimizer are alike."""
    for one, two in zip(state(model), state(other), strict=True):
        np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)
