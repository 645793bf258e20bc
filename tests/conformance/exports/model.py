"""A model for the tests of exports, and its TPUEstimator program."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

import trainer

v1 = tf.compat.v1

Features: TypeAlias = dict[str, Any]
Network: TypeAlias = Callable[..., Any]
Place: TypeAlias = Callable[[Callable[[Features], Any], Features], Any]
Heads: TypeAlias = Callable[[Any], dict[str, Any]]

ROWS = 8
TRAINING_STEPS = 4


def _as_it_is(features: Features) -> Features:
    return features


@dataclass(frozen=True)
class Model:
    """A small classifier of a common kind.

    Attributes:
      name: the name in the table of docs/conformance.md.
      what: a line for the document about the architecture.
      features: the features as clients send them, `ROWS` rows.
      classes: the number of classes.
      make: creates the variables; returns the network, which takes dense features and `training`,
        and returns logits [rows, classes].
      dense: converts features from a client to the dense features that the network takes, by ops
        that only a host can run. It returns dense features unchanged.
      whole: the model_fn of the model; None for the model_fn of `classifier`.
    """

    name: str
    what: str
    features: Mapping[str, np.ndarray[Any, Any]]
    classes: int
    make: Callable[[], Network]
    dense: Callable[[Features], Features] = _as_it_is
    whole: Callable[..., Any] | None = None

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The model_fn of the model, which places no part of the model on a device."""
        return self.whole or classifier(self)

    def input_fn(self) -> Any:
        """Return a dataset that repeats one batch, the features; row r has label r % classes."""
        labels = np.arange(ROWS, dtype=np.int32) % self.classes
        return tf.data.Dataset.from_tensors((dict(self.features), labels)).repeat()

    def placeholders(self) -> Features:
        """Return a placeholder for each feature that a client sends; the batch size is open."""
        return {
            name: v1.placeholder(_dtype(feature), [None, *feature.shape[1:]], name=name)
            for name, feature in self.features.items()
        }

    def raw_receiver_fn(self) -> trainer.ServingInputReceiver:
        """Pass the features of a client to model_fn unchanged."""
        placeholders = self.placeholders()
        return trainer.ServingInputReceiver(placeholders, placeholders)

    def dense_receiver_fn(self) -> trainer.ServingInputReceiver:
        """Pass the features of a client to model_fn as dense features, computed on the host."""
        placeholders = self.placeholders()
        return trainer.ServingInputReceiver(self.dense(placeholders), placeholders)

    def parsing_receiver_fn(self) -> trainer.ServingInputReceiver:
        """Parse tf.Examples, and pass their features to model_fn as dense features."""
        spec = {
            name: tf.io.FixedLenFeature(feature.shape[1:], _example_dtype(feature))
            for name, feature in self.features.items()
        }
        parsed: trainer.ServingInputReceiver = trainer.build_parsing_serving_input_receiver_fn(
            spec
        )()
        features = {
            name: tf.cast(feature, self.features[name].dtype) if _is_integer(feature) else feature
            for name, feature in parsed.features.items()
        }
        return trainer.ServingInputReceiver(self.dense(features), parsed.receiver_tensors)

    def examples(self) -> np.ndarray[Any, Any]:
        """Return the features as serialized tf.Examples, an object array of bytes [rows]."""
        rows = [self._example(row).SerializeToString() for row in range(ROWS)]
        return np.array(rows, object)

    def _example(self, row: int) -> Any:
        example = tf.train.Example()
        for name, spec in self.features.items():
            values = np.ravel(spec[row : row + 1])
            feature = example.features.feature[name]
            if values.dtype == object:
                feature.bytes_list.value.extend(values)
            elif np.issubdtype(values.dtype, np.integer):
                feature.int64_list.value.extend(values)
            else:
                feature.float_list.value.extend(values)
        return example


def on_host(network: Callable[[Features], Any], features: Features) -> Any:
    """Return the network's logits; a `Place` that leaves the network on the host."""
    return network(features)


def predictions(logits: Any) -> dict[str, Any]:
    """Return the predictions of a classifier: the class and the probabilities of each row."""
    return {"class": tf.argmax(logits, 1), "probabilities": tf.nn.softmax(logits)}


def classifier(model: Model, place: Place = on_host, heads: Heads | None = None) -> Any:
    """Return a model_fn that trains a model and exports it.

    Args:
      model: the model.
      place: applies the network to the features in the PREDICT graph for the TPU, and decides what
        runs on the TPU. The CPU graph uses `on_host`.
      heads: converts logits to export outputs; None for predictions alone.
    """

    def model_fn(features: Features, labels: Any, mode: str, params: Any) -> Any:
        network = model.make()
        dense = model.dense(features)
        if mode == trainer.ModeKeys.PREDICT:
            placed = place if params["use_tpu"] else on_host
            logits = placed(lambda inputs: network(inputs, training=False), dense)
            outputs = heads(logits) if heads else None
            return trainer.TPUEstimatorSpec(mode, predictions(logits), export_outputs=outputs)
        logits = network(dense, training=True)
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        optimizer = trainer.CrossShardOptimizer(v1.train.AdamOptimizer(0.01))
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def estimator(model_fn: Callable[..., Any], model_dir: Path, version: int = 1) -> Any:
    """Return an estimator without a TPU that exports with API version 1 or 2.

    Version 1 puts the whole model on the TPU; with version 2 model_fn places parts of it there.
    """
    return trainer.TPUEstimator(
        model_fn,
        config=trainer.RunConfig(model_dir=str(model_dir), tf_random_seed=1),
        params={"learning_rate": 0.05},
        use_tpu=False,
        export_saved_model_api_version=version,
    )


def train(model: Model, model_dir: Path) -> None:
    """Train a model for a few steps, so that no variable has its initial value."""
    estimator(model.model_fn, model_dir).train(model.input_fn, max_steps=TRAINING_STEPS)


def _dtype(array: np.ndarray[Any, Any]) -> Any:
    return tf.string if array.dtype == object else tf.as_dtype(array.dtype)


def _example_dtype(array: np.ndarray[Any, Any]) -> Any:
    """Return the dtype of a feature in a tf.Example, whose only integer type is int64."""
    return tf.int64 if np.issubdtype(array.dtype, np.integer) else _dtype(array)


def _is_integer(tensor: Any) -> bool:
    return bool(tensor.dtype.is_integer)
