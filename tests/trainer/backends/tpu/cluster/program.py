"""A program that trains a small model on the emulated TPU of a cluster.

Arguments: MODE MODEL_DIR [TIMEOUT_SECS]. It prints values for the test, as JSON.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import trainer
import trainer.export
from tpuserve.errors import TpuserveError

v1 = tf.compat.v1

REPLICAS, ROWS = 8, 2
"""The replicas of all hosts together, and the rows of the batch of each."""


def make_input(batches: int, *, in_python: bool = False) -> Callable[..., Any]:
    """Return an input_fn that gives each replica its rows of random global batches.

    Every second host has the features in another order.

    Args:
      batches: the number of global batches.
      in_python: whether Python code, which reports its host, generates and changes the batches.
    """

    def input_fn(params: Any) -> Any:
        context, rows = params["context"], params["batch_size"]
        host, local = context.current_host, context.num_of_replicas_per_host
        random = np.random.default_rng(0).normal(size=[batches, context.num_replicas, rows, 3])
        x = random[:, host * local : (host + 1) * local].reshape(-1, rows, 3).astype(np.float32)
        features = {"a": x[..., :1], "b": x[..., 1:]}
        if host % 2:
            features = dict(reversed(features.items()))
        if in_python:
            return generate_in_python(features, host)
        return tf.data.Dataset.from_tensor_slices((features, np.tanh(x.sum(-1, keepdims=True))))

    return input_fn


def generate_in_python(features: dict[str, Any], host: int) -> Any:
    """Return the batches of a host from a generator, with labels that Python functions compute."""

    def generate() -> Iterator[dict[str, Any]]:
        report(generates_for=host)
        for index in range(len(features["a"])):
            yield {name: value[index] for name, value in features.items()}

    def add_labels(x: Any) -> Any:
        total = tf.numpy_function(
            lambda a, b: a + b.sum(-1, keepdims=True), list(map(x.get, "ab")), tf.float32
        )
        labels = tf.py_function(tf.tanh, [total], tf.float32)
        return x, tf.ensure_shape(labels, [ROWS, 1])

    specs = {name: tf.TensorSpec(value.shape[1:]) for name, value in features.items()}
    return tf.data.Dataset.from_generator(generate, output_signature=specs).map(add_labels)


def whole_batches(params: Any) -> Any:
    """Four global batches."""
    random = np.random.default_rng(1).normal(size=[4, params["batch_size"], 3]).astype(np.float32)
    features = {"a": random[..., :1], "b": random[..., 1:]}
    labels = np.tanh(random.sum(-1, keepdims=True))
    return tf.data.Dataset.from_tensor_slices((features, labels))


def other_features_on_the_last_host(params: Any) -> Any:
    """Features of another name on the last host."""
    context = params["context"]
    name = "c" if context.current_host == context.num_hosts - 1 else "b"
    return make_input(4)(params).map(lambda x, y: ({"a": x["a"], name: x["b"]}, y))


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """A network of one hidden layer."""
    x = tf.concat([features["a"], features["b"]], -1)
    y = v1.layers.dense(v1.layers.dense(x, 4, tf.tanh, name="hidden"), 1, name="output")
    if mode == trainer.ModeKeys.PREDICT:
        return trainer.TPUEstimatorSpec(mode, predictions={"y": y})
    loss = tf.reduce_mean((y - labels) ** 2)
    if mode == trainer.ModeKeys.EVAL:
        metrics = (lambda y: {"mean_y": v1.metrics.mean(y)}), [y]
        return trainer.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
    optimizer = trainer.CrossShardOptimizer(v1.train.MomentumOptimizer(0.05, 0.9))
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    host_call = report_replicas, [tf.reshape(loss, [1])]
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=host_call)


def report_replicas(losses: Any) -> Any:
    """The function of the host_call: report how many replicas' losses have come."""
    return v1.py_func(lambda values: report(replicas=len(values)), [losses], [])


def resolve_cluster() -> Any:
    """Return the cluster resolver of some of the tasks; the others only have TF_CONFIG."""
    resolvers = tf.distribute.cluster_resolver
    described = json.loads(os.environ.get("TF_CONFIG", "{}"))
    task = described.get("task", {"type": "", "index": 0})
    if task == {"type": "worker", "index": 1} or task["type"] == "evaluator":
        return resolvers.TFConfigClusterResolver()
    if task == {"type": "worker", "index": 2}:
        del os.environ["TF_CONFIG"]
        spec = tf.train.ClusterSpec(described["cluster"])
        return resolvers.SimpleClusterResolver(
            spec, task_type="worker", task_id=2, rpc_layer="grpc"
        )
    return None


def make_estimator(
    model_dir: Path, mode: int = trainer.InputPipelineConfig.PER_HOST_V2, **config: Any
) -> trainer.TPUEstimator:
    """An estimator of the model, for eight replicas."""
    tpu_config = trainer.TPUConfig(iterations_per_loop=5, per_host_input_for_training=mode)
    run_config = trainer.RunConfig(
        tpu_config,
        model_dir=str(model_dir),
        tf_random_seed=1,
        save_checkpoints_steps=5,
        **config,
    )
    size = REPLICAS * ROWS
    return trainer.TPUEstimator(
        model_fn,
        config=run_config,
        train_batch_size=size,
        eval_batch_size=size,
        predict_batch_size=size,
    )


def report(**values: Any) -> None:
    """Print values for the test."""
    # print() would write the end of the line separately, and another thread's line before it.
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def train_alone(model_dir: Path) -> None:
    """Train and evaluate without a cluster."""
    estimator = make_estimator(model_dir).train(make_input(20, in_python=True), max_steps=18)
    report(metrics=estimator.evaluate(make_input(3)))
    use_sliced_input(model_dir / "sliced")


def use_sliced_input(model_dir: Path, **config: Any) -> None:
    """Train, evaluate and predict with batches that one host reads for all replicas."""
    sliced = trainer.InputPipelineConfig.SLICED
    estimator = make_estimator(model_dir, sliced, **config)
    estimator.train(whole_batches, max_steps=4)
    metrics = estimator.evaluate(whole_batches)
    predictions = [row["y"].tolist() for row in estimator.predict(whole_batches)]
    report(sliced={"metrics": metrics, "predictions": predictions})


def receive() -> Any:
    """The input of an export."""
    names = {"a": 1, "b": 2}
    features = {name: v1.placeholder(tf.float32, [None, size]) for name, size in names.items()}
    return trainer.export.ServingInputReceiver(features, features)


def train_together(model_dir: Path) -> None:
    """Train with an evaluator beside; then evaluate in the cluster, and differ in features."""
    estimator = make_estimator(model_dir, cluster=resolve_cluster())
    train_spec = trainer.TrainSpec(make_input(20, in_python=True), max_steps=18)
    exporter = trainer.FinalExporter("final", receive)
    eval_spec = trainer.EvalSpec(
        make_input(3), steps=None, exporters=exporter, start_delay_secs=0, throttle_secs=0
    )
    trainer.train_and_evaluate(estimator, train_spec, eval_spec)
    report(task=estimator.config.task_type)
    if not estimator.config.is_chief:
        return
    report(metrics=estimator.evaluate(make_input(3)))
    use_sliced_input(model_dir / "sliced", cluster=resolve_cluster())
    for name, input_fn in (
        ("other_features", other_features_on_the_last_host),
        ("other_python_code", make_input(4, in_python=True)),
    ):
        try:
            estimator.train(input_fn, steps=5)
        except TpuserveError as error:
            report(**{name: str(error)})


class TellStepHook(tf.compat.v1.train.SessionRunHook):
    """Reports the global step after each loop of training, or after each batch of an evaluation.

    The checkpoint of the loop is saved by then.
    """

    def begin(self) -> None:
        self._step = v1.train.get_global_step()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        report(step=int(run_context.session.run(self._step)))


def train_without_end(model_dir: Path, timeout_secs: float = 7200) -> None:
    """Train, and save a checkpoint after each loop."""
    estimator = make_estimator(model_dir, session_creation_timeout_secs=timeout_secs)
    wait_for_all(model_dir, estimator.config)
    estimator.train(lambda params: make_input(4)(params).repeat(), hooks=[TellStepHook()])


def evaluate_without_end(model_dir: Path) -> None:
    """Evaluate initial values, batch for batch."""
    estimator = make_estimator(model_dir)
    estimator.evaluate(lambda params: make_input(4)(params).repeat(), hooks=[TellStepHook()])


def exit_with_error(model_dir: Path) -> None:
    """Evaluate a batch, and end the program by an error in the exit status."""
    make_estimator(model_dir).evaluate(make_input(1))
    sys.exit("the metrics are too bad")


def wait_for_all(model_dir: Path, config: trainer.RunConfig) -> None:
    """Wait until the processes of all tasks are there, so that the timeout begins for all."""
    (model_dir / f"ready_{config.task_type}_{config.task_id}").touch()
    while len(list(model_dir.glob("ready_*"))) < config.num_worker_replicas:
        time.sleep(0.05)


_MODES: dict[str, Callable[..., None]] = {
    "alone": train_alone,
    "together": train_together,
    "endless": train_without_end,
    "endless_evaluation": evaluate_without_end,
    "exit_with_error": exit_with_error,
}

if __name__ == "__main__":
    v1.logging.set_verbosity(v1.logging.INFO)
    _MODES[sys.argv[1]](Path(sys.argv[2]), *map(float, sys.argv[3:]))
