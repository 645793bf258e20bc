"""A model with numbers that are easy to work out: y is the sum of the activations of a row."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import trainer
from trainer.embedding.config import EmbeddingConfigSpec, FeatureConfig, TableConfig
from trainer.embedding.optimization_parameters import (
    OptimizationParameters,
    StochasticGradientDescentParameters,
)

v1 = tf.compat.v1

ROWS, DIMENSION = 7, 2
INITIAL = np.arange(ROWS * DIMENSION, dtype=np.float32).reshape(ROWS, DIMENSION) / 10
# The ids in the four rows of a batch, padded with -1.
IDS = [[1, 2, -1], [3, -1, -1], [4, 6, 3], [1, 3, 1]]


def sparse(ids: Any) -> Any:
    """Return ids, padded with -1, as a SparseTensor."""
    padded = tf.constant(ids)
    indices = tf.where(padded >= 0)
    return tf.SparseTensor(indices, tf.gather_nd(padded, indices), tf.shape(padded, tf.int64))


def batches(*batches: Any, features: Iterable[str] = ("x",)) -> Callable[..., Any]:
    """Return an input_fn that repeats some batches of ids, the same in each feature; labels are 1.

    Args:
      *batches: for each batch, the ids in its rows, padded with -1.
      features: the names of the features.
    """

    def input_fn(params: Any) -> Any:
        tensors = [
            (dict.fromkeys(features, sparse(ids)), tf.ones([len(ids), 1])) for ids in batches
        ]
        datasets = [tf.data.Dataset.from_tensors(tensor) for tensor in tensors]
        return tf.data.Dataset.choose_from_datasets(
            datasets, tf.data.Dataset.range(len(datasets))
        ).repeat()

    return input_fn


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """y = sum of the activations of x; the loss is the mean of (y - label)^2 / 2."""
    y = tf.reduce_sum(features["x"], axis=range(1, features["x"].shape.rank))[:, tf.newaxis]
    if mode == trainer.ModeKeys.PREDICT:
        return trainer.TPUEstimatorSpec(mode, predictions={"y": y, "x": features["x"]})
    loss = tf.reduce_mean((y - labels) ** 2 / 2.0)
    if mode == trainer.ModeKeys.EVAL:
        return trainer.TPUEstimatorSpec(mode, loss=loss)
    optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.5))
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def model_fn_of_tables(features: Any, labels: Any, mode: str) -> Any:
    """The loss is the sum of the losses that `model_fn` has for each of the features."""
    sums = [tf.reduce_sum(x, axis=1, keepdims=True) for x in features.values()]
    loss = tf.add_n([tf.reduce_mean((y - labels) ** 2 / 2.0) for y in sums])
    optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.5))
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def model_fn_with_train_op(features: Any, labels: Any, mode: str) -> Any:
    """The model of `model_fn`, with a loss and a train_op in every mode; labels are 1."""
    y = tf.reduce_sum(features["x"], axis=1, keepdims=True)
    loss = tf.reduce_mean((y - 1.0) ** 2 / 2.0)
    optimizer = trainer.CrossShardOptimizer(v1.train.AdamOptimizer(0.5))
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, {"y": y}, loss, train_op)


def spec(
    parameters: OptimizationParameters | None = None,
    *,
    max_sequence_length: int = 0,
    partition_strategy: str = "div",
    pipelined: bool = False,
    clipping_limit: float | None = None,
    multiplier_fn: Any = None,
    rows: int = ROWS,
    dimension: int = DIMENSION,
    **table: Any,
) -> EmbeddingConfigSpec:
    """Return the spec of a table "words", in which the feature "x" is looked up."""
    settings = {"initializer": v1.constant_initializer(INITIAL), **table}
    return EmbeddingConfigSpec(
        optimization_parameters=parameters or StochasticGradientDescentParameters(0.5),
        feature_to_config_dict={"x": FeatureConfig("words", max_sequence_length)},
        table_to_config_dict={"words": TableConfig(rows, dimension, **settings)},
        partition_strategy=partition_strategy,
        pipeline_execution_with_tensor_core=pipelined,
        clipping_limit=clipping_limit,
        experimental_gradient_multiplier_fn=multiplier_fn,
    )


def spec_of_tables(
    tables: dict[str, dict[str, Any]], partition_strategy: str = "div"
) -> EmbeddingConfigSpec:
    """Return the spec of several tables, each with a feature of its name: name → settings."""
    initializer = v1.constant_initializer(INITIAL)
    return EmbeddingConfigSpec(
        optimization_parameters=StochasticGradientDescentParameters(0.5),
        feature_to_config_dict={name: FeatureConfig(name) for name in tables},
        table_to_config_dict={
            name: TableConfig(ROWS, DIMENSION, **{"initializer": initializer, **settings})
            for name, settings in tables.items()
        },
        partition_strategy=partition_strategy,
    )


def estimator(
    model_dir: Path,
    embedding_config_spec: EmbeddingConfigSpec,
    *,
    use_tpu: bool = True,
    model: Callable[..., Any] = model_fn,
    batch_size: int = 4,
    run_config: dict[str, Any] | None = None,
    **config: Any,
) -> trainer.TPUEstimator:
    """Return a TPUEstimator of the model."""
    settings = {"iterations_per_loop": 2, **config}
    return trainer.TPUEstimator(
        model,
        config=trainer.RunConfig(
            trainer.TPUConfig(**settings), model_dir=str(model_dir), **(run_config or {})
        ),
        use_tpu=use_tpu,
        train_batch_size=batch_size,
        eval_batch_size=batch_size,
        predict_batch_size=batch_size,
        embedding_config_spec=embedding_config_spec,
    )


def variables(model_dir: Path, step: int | None = None) -> dict[str, Any]:
    """Return the variables in the checkpoint of a step, or in the newest: name → value."""
    newest = tf.train.latest_checkpoint(str(model_dir))
    checkpoint = newest if step is None else str(model_dir / f"model.ckpt-{step}")
    names = [name for name, _ in tf.train.list_variables(checkpoint)]
    return {name: tf.train.load_variable(checkpoint, name) for name in names}
