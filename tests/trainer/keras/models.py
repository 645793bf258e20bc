"""Keras models of Keras 3 and of tf_keras, their conversion, and reference runs of model.fit."""

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

PACKAGES = [keras, tf_keras]

ROWS = 8
_random = np.random.RandomState(0)
X = _random.randn(6 * ROWS, 4).astype("float32")
Y = _random.randint(0, 3, 6 * ROWS).astype("int32")


def batches(x: Any = X, y: Any = Y, weights: Any = None, rows: int = ROWS) -> Any:
    """Return a Dataset of full batches, in order."""
    parts = (x, y) if weights is None else (x, y, weights)
    return tf.data.Dataset.from_tensor_slices(parts).batch(rows, drop_remainder=True)


def dense(package: Any, optimizer: Any = "sgd", **compile_args: Any) -> Any:
    """Build a model of 4 features and 3 classes, with the same weights in each call and Keras."""
    model = package.Sequential(
        [
            package.layers.Input((4,)),
            package.layers.Dense(5, activation="tanh"),
            package.layers.Dense(3),
        ]
    )
    return with_weights(compiled_model(package, model, optimizer, **compile_args))


def compiled_model(package: Any, model: Any, optimizer: Any = "sgd", **compile_args: Any) -> Any:
    """Compile a model, by default with a loss for classes, and return it."""
    loss = package.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(**{"optimizer": optimizer, "loss": loss, **compile_args})
    return model


def with_weights(model: Any) -> Any:
    """Set weights that depend on their shapes alone, and return the model."""
    random = np.random.RandomState(1)
    weights = [
        random.uniform(0.1, 0.9, weight.shape) - 0.5 * (weight.ndim > 1)
        for weight in model.get_weights()
    ]
    model.set_weights(weights)
    return model


def estimator(model: Any, model_dir: Path, **options: Any) -> Any:
    """Convert a model to an estimator, by default for the CPU."""
    config = trainer.RunConfig(
        trainer.TPUConfig(iterations_per_loop=1), save_summary_steps=1, log_step_count_steps=1
    )
    sizes = dict.fromkeys(("train_batch_size", "eval_batch_size", "predict_batch_size"), ROWS)
    return trainer.model_to_tpu_estimator(
        model, model_dir=str(model_dir), config=config, **{"use_tpu": False, **sizes, **options}
    )


def input_fn(dataset: Callable[..., Any]) -> Callable[..., Any]:
    """Return an input_fn for a function that builds a Dataset with batches of `rows` rows."""
    return lambda params: dataset(rows=params["batch_size"])


def train_epoch(
    model: Any, model_dir: Path, cores: int, dataset: Any = batches, **options: Any
) -> Any:
    """Return an estimator that has trained one epoch on a number of TPU cores; 0 for the CPU."""
    converted = estimator(model, model_dir, use_tpu=cores > 0, **options)
    with emulated_tpu(cores):
        converted.train(input_fn(dataset), steps=sum(1 for _ in dataset()))
    return converted


def emulated_tpu(cores: int, *, compiled: bool = False) -> Any:
    """Return an emulated TPU; for 0 cores one that is never used."""
    return tpuserve.emulated_tpu(cores=cores or 1, compiled=compiled)


def read_losses(model_dir: Path) -> list[float]:
    """Return the loss of each step of an estimator, from its summaries."""
    return [value for _, value in sorted(scalars(model_dir)["loss"].items())]


def fit_epoch(
    package: Any, model: Any, dataset: Any = batches, *, eagerly: bool = True, **options: Any
) -> list[float]:
    """Run model.fit for one epoch and return the loss of each step.

    By default, fit runs eagerly: for a few steps, this takes less time than tracing.
    """
    losses: list[float] = []

    class RecordLosses(package.callbacks.Callback):
        """Computes the loss of each batch from the mean of all batches so far."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            losses.append(logs["loss"] * (batch + 1) - sum(losses))

    model.run_eagerly = eagerly
    model.fit(dataset(), verbose=0, shuffle=False, callbacks=[RecordLosses()], **options)
    model.run_eagerly = False  # The conversion of a model refuses run_eagerly.
    return losses


def values(model: Any) -> list[Any]:
    """Return all values of a model and of its optimizer."""
    variables = model.optimizer.variables
    slots = variables() if callable(variables) else variables
    arrays = [*model.get_weights(), *(slot.numpy() for slot in slots)]
    return [np.asarray(array, "float64") for array in arrays]


def assert_same_values(model: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Assert that two models and their optimizers have the same values."""
    for actual, desired in zip(values(model), values(expected), strict=True):
        np.testing.assert_allclose(actual, desired, rtol=tolerance, atol=tolerance)
