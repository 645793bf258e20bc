"""A model of feature columns of embedding tables: one of each kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import trainer
from trainer.embedding.config import EmbeddingConfigSpec
from trainer.embedding.optimization_parameters import AdagradParameters

v1 = tf.compat.v1
fc = tf.feature_column
experimental = v1.tpu.experimental

FEATURES: dict[str, Sequence[Sequence[float]]] = {
    "single": [[1, 2], [3], [], [4, 4, 9]],
    "weighted": [[1], [2, 3], [0], [5]],
    "weights": [[1.0], [0.5, 2.0], [1.0], [3.0]],
    "first": [[1], [2], [3], [4]],
    "second": [[0], [0], [1], [1, 2]],
    "sequence": [[1, 2, 3], [4], [5, 6], []],
}
SINGLE = np.arange(40, dtype=np.float32).reshape(10, 4) / 40
SHARED = np.arange(15, dtype=np.float32).reshape(5, 3) / 15


def sparse(rows: Sequence[Sequence[float]]) -> Any:
    """Return rows of different lengths as a SparseTensor."""
    indices = [(row, column) for row, row_ids in enumerate(rows) for column in range(len(row_ids))]
    values = [value for row in rows for value in row]
    dtype = np.float32 if isinstance(values[0], float) else np.int64
    return tf.SparseTensor(
        np.array(indices, np.int64).reshape(-1, 2),
        np.array(values, dtype),
        [len(rows), max(map(len, rows))],
    )


@dataclass(frozen=True)
class Columns:
    """The columns of the model."""

    plain: tuple[Any, ...]
    sequences: tuple[Any, ...]


def make_columns() -> Columns:
    identity = fc.categorical_column_with_identity
    weighted = fc.weighted_categorical_column(identity("weighted", 6), "weights")
    sequence = fc.sequence_categorical_column_with_identity("sequence", 7)
    shared = experimental.shared_embedding_columns(
        [identity("first", 5), identity("second", 5)],
        3,
        combiner="sum",
        initializer=v1.constant_initializer(SHARED),
        shared_embedding_collection_name="shared",
    )
    single = experimental.embedding_column(
        identity("single", 10), 4, initializer=v1.constant_initializer(SINGLE)
    )
    ones = v1.ones_initializer()
    return Columns(
        (
            single,
            experimental.embedding_column(weighted, 2, combiner="sqrtn", initializer=ones),
            *shared,
        ),
        (experimental.embedding_column(sequence, 2, max_sequence_length=2, initializer=ones),),
    )


def input_fn(params: Any) -> Any:
    features = {name: sparse(rows) for name, rows in FEATURES.items()}
    return tf.data.Dataset.from_tensors((features, tf.ones([4, 1]))).repeat()


def predict_input_fn(params: Any) -> Any:
    return input_fn(params).map(lambda features, labels: features).take(1)


def model_of(columns: Columns, *, always_trains: bool) -> Any:
    """Return a model_fn: a dense layer on all activations.

    Args:
      columns: the columns.
      always_trains: whether predictions have a train_op too.
    """

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        x = v1.keras.layers.DenseFeatures(columns.plain)(features)
        sequence, lengths = tf.keras.experimental.SequenceFeatures(columns.sequences)(features)
        lengths = tf.cast(lengths, tf.float32)[:, tf.newaxis]
        x = tf.concat([x, tf.reduce_sum(sequence, 1), lengths], 1)
        kernel = v1.get_variable("kernel", [15, 1], initializer=v1.constant_initializer(0.1))
        y = x @ kernel
        if mode == trainer.ModeKeys.PREDICT and not always_trains:
            return trainer.TPUEstimatorSpec(mode, predictions={"x": x, "y": y})
        # All labels are 1. The optimizer of the tables is Adagrad, so a checkpoint has no slot of
        # a table for this Adam, which evaluation and prediction build in vain.
        loss = tf.reduce_mean((y - 1.0) ** 2)
        optimizer = trainer.CrossShardOptimizer(v1.train.AdamOptimizer(0.1, epsilon=1e-3))
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return trainer.TPUEstimatorSpec(mode, {"x": x, "y": y}, loss, train_op)

    return model_fn


def estimator(
    model_dir: Path, *, use_tpu: bool, always_trains: bool = True
) -> trainer.TPUEstimator:
    """Return a TPUEstimator of the model."""
    columns = make_columns()
    return trainer.TPUEstimator(
        model_of(columns, always_trains=always_trains),
        config=trainer.RunConfig(trainer.TPUConfig(2), model_dir=str(model_dir)),
        use_tpu=use_tpu,
        train_batch_size=4,
        eval_batch_size=4,
        predict_batch_size=4,
        embedding_config_spec=EmbeddingConfigSpec(
            [*columns.plain, *columns.sequences], AdagradParameters(0.1)
        ),
    )
