"""A model as the tests of exports know it, and the TPUEstimator program that it is."""

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
    """A classifier that is small, and of a kind that people serve.

    Attributes:
      name: in the table.
      what: in a line, for the document.
      features: as clients send them, `ROWS` rows.
      classes: how many.
      make: makes the variables; returns the network, which takes dense features and `training` and
        gives logits, [rows, classes].
      dense: features as a client sends them → those that the network takes: what only a host can
        do. It leaves dense features alone.
      whole: a model_fn that does all of it; None for that of `classifier`.
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
        """The model as a program, with nothing placed."""
        return self.whole or classifier(self)

    def input_fn(self) -> Any:
        """The features, over and over, each row of a class of its own."""
        labels = np.arange(ROWS, dtype=np.int32) % self.classes
        return tf.data.Dataset.from_tensors((dict(self.features), labels)).repeat()

    def placeholders(self) -> Features:
        """What a client sends, with an open batch."""
        return {
            name: v1.placeholder(_dtype(each), [None, *each.shape[1:]], name=name)
            for name, each in self.features.items()
        }

    def raw_receiver_fn(self) -> trainer.ServingInputReceiver:
        """Takes what a client sends, and leaves all else to model_fn."""
        placeholders = self.placeholders()
        return trainer.ServingInputReceiver(placeholders, placeholders)

    def dense_receiver_fn(self) -> trainer.ServingInputReceiver:
        """Takes what a client sends, and does on the host what only a host can do."""
        placeholders = self.placeholders()
        return trainer.ServingInputReceiver(self.dense(placeholders), placeholders)

    def parsing_receiver_fn(self) -> trainer.ServingInputReceiver:
        """Takes tf.Examples, and does on the host what only a host can do."""
        spec = {
            name: tf.io.FixedLenFeature(each.shape[1:], _stored(each))
            for name, each in self.features.items()
        }
        parsed: trainer.ServingInputReceiver = trainer.build_parsing_serving_input_receiver_fn(
            spec
        )()
        features = {
            name: tf.cast(each, self.features[name].dtype) if _is_integer(each) else each
            for name, each in parsed.features.items()
        }
        return trainer.ServingInputReceiver(self.dense(features), parsed.receiver_tensors)

    def examples(self) -> np.ndarray[Any, Any]:
        """The features as serialized tf.Examples, [rows]."""
        rows = [self._example(row).SerializeToString() for row in range(ROWS)]
        return np.array(rows, object)

    def _example(self, row: int) -> Any:
        example = tf.train.Example()
        for name, each in self.features.items():
            values = np.ravel(each[row : row + 1])
            feature = example.features.feature[name]
            if values.dtype == object:
                feature.bytes_list.value.extend(values)
            elif np.issubdtype(values.dtype, np.integer):
                feature.int64_list.value.extend(values)
            else:
                feature.float_list.value.extend(values)
        return example


def on_host(network: Callable[[Features], Any], features: Features) -> Any:
    """The network's logits, placed nowhere."""
    return network(features)


def predictions(logits: Any) -> dict[str, Any]:
    """What a classifier is asked for."""
    return {"class": tf.argmax(logits, 1), "probabilities": tf.nn.softmax(logits)}


def classifier(model: Model, place: Place = on_host, heads: Heads | None = None) -> Any:
    """A model_fn.

    Args:
      place: computes the network on the features, in a PREDICT graph that is for the TPU.
      heads: logits → export outputs; None for predictions alone.
    """

    def model_fn(features: Features, labels: Any, mode: str, params: Any) -> Any:
        network = model.make()
        dense = model.dense(features)
        if mode == trainer.ModeKeys.PREDICT:
            placed = place if params["use_tpu"] else on_host
            logits = placed(lambda given: network(given, training=False), dense)
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
    """An estimator that exports by version 1, which places, or 2, where model_fn does."""
    return trainer.TPUEstimator(
        model_fn,
        config=trainer.RunConfig(model_dir=str(model_dir), tf_random_seed=1),
        params={"learning_rate": 0.05},
        use_tpu=False,
        export_saved_model_api_version=version,
    )


def train(model: Model, model_dir: Path) -> None:
    """A few steps, so that no variable has its first value."""
    estimator(model.model_fn, model_dir).train(model.input_fn, max_steps=TRAINING_STEPS)


def _dtype(array: np.ndarray[Any, Any]) -> Any:
    return tf.string if array.dtype == object else tf.as_dtype(array.dtype)


def _stored(array: np.ndarray[Any, Any]) -> Any:
    """The type in a tf.Example, which knows but one integer."""
    return tf.int64 if np.issubdtype(array.dtype, np.integer) else _dtype(array)


def _is_integer(tensor: Any) -> bool:
    return bool(tensor.dtype.is_integer)
