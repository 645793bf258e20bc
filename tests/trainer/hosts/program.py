"""A program that trains a small model on several hosts.

Arguments: MODE MODEL_DIR. Each host prints values for the test, as JSON.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import trainer

v1 = tf.compat.v1

REPLICAS, ROWS = 8, 2
"""The replicas of all hosts together, and the rows of the batch of each."""


def make_input(batches: int, more_on_each_host: int = 0) -> Callable[..., Any]:
    """Return an input_fn that gives each replica its rows of random global batches.

    Every second host has the features in another order.

    Args:
      batches: the number of global batches.
      more_on_each_host: how many batches a host has more than the one before.
    """

    def input_fn(params: Any) -> Any:
        context, rows = params["context"], params["batch_size"]
        host, local = context.current_host, context.num_of_replicas_per_host
        count = batches + host * more_on_each_host
        random = np.random.default_rng(0).normal(size=[count, context.num_replicas, rows, 3])
        x = random[:, host * local : (host + 1) * local].reshape(-1, rows, 3).astype(np.float32)
        features = {"a": x[..., :1], "b": x[..., 1:]}
        if host % 2:
            features = dict(reversed(features.items()))
        return tf.data.Dataset.from_tensor_slices((features, np.tanh(x.sum(-1, keepdims=True))))

    return input_fn


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """A network of one hidden layer."""
    x = tf.concat([features["a"], features["b"]], -1)
    y = v1.layers.dense(v1.layers.dense(x, 4, tf.tanh, name="hidden"), 1, name="output")
    if mode == trainer.ModeKeys.PREDICT:
        return trainer.TPUEstimatorSpec(mode, predictions={"y": y})
    loss = tf.reduce_mean((y - labels) ** 2)
    if mode == trainer.ModeKeys.EVAL:
        # Every row counts once, because all labels and predictions are true.
        metrics = (lambda y: {"rows": v1.metrics.true_positives(y < 1e9, y < 1e9)}), [y]
        return trainer.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
    optimizer = trainer.CrossShardOptimizer(v1.train.MomentumOptimizer(0.05, 0.9))
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def make_estimator(model_dir: Path, **config: Any) -> trainer.TPUEstimator:
    """An estimator of the model, for eight replicas."""
    tpu_config = trainer.TPUConfig(
        iterations_per_loop=5,
        per_host_input_for_training=trainer.InputPipelineConfig.PER_HOST_V2,
    )
    size = REPLICAS * ROWS
    return trainer.TPUEstimator(
        model_fn,
        config=trainer.RunConfig(tpu_config, model_dir=str(model_dir), **config),
        train_batch_size=size,
        eval_batch_size=size,
    )


def train_model(model_dir: Path) -> trainer.TPUEstimator:
    """Train for 18 steps, in loops of 5."""
    estimator = make_estimator(model_dir, tf_random_seed=1)
    return estimator.train(make_input(20), max_steps=18)


def report(**values: Any) -> None:
    """Print values for the test."""
    print(json.dumps(values), flush=True)


def run_together(model_dir: Path) -> None:
    """Train and evaluate with input of the same length on all hosts."""
    report(same=train_model(model_dir).evaluate(make_input(3)))


def run_uneven(model_dir: Path) -> None:
    """Evaluate and train with input that ends earlier on some hosts."""
    estimator = make_estimator(model_dir)
    estimator.train(make_input(7, more_on_each_host=4))
    report(step=int(estimator.get_variable_value("global_step")))
    report(evaluation=estimator.evaluate(make_input(2, more_on_each_host=1)))


_MODES = {"together": run_together, "uneven": run_uneven}

if __name__ == "__main__":
    _MODES[sys.argv[1]](Path(sys.argv[2]))
