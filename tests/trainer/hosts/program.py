"""A program that trains a small model on several hosts: MODE MODEL_DIR.

MODE is a key of `_MODES`. Each host prints values for the test, as JSON objects in a line each.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import trainer
import trainer.export
from tests.trainer.embedding import sums
from tpuserve.errors import HostsDiffer, WrongContext
from trainer.embedding.optimization_parameters import AdagradParameters
from trainer.hosts.group import current_group

v1 = tf.compat.v1

TABLE_ROWS = 23
REPLICAS, ROWS = 8, 2
"""The replicas of all hosts together, and the rows of the batch of each."""


def make_input(batches: int, more_on_each_host: int = 0) -> Callable[..., Any]:
    """Return an input_fn that gives each replica its rows of random global batches.

    Every second host has the features in another order.

    Args:
      batches: the number of global batches.
      more_on_each_host: host n has n times this number of batches in addition.
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
    """Build a network with one hidden layer."""
    x = tf.concat([features["a"], features["b"]], -1)
    y = v1.layers.dense(v1.layers.dense(x, 4, tf.tanh, name="hidden"), 1, name="output")
    if mode == trainer.ModeKeys.PREDICT:
        return trainer.TPUEstimatorSpec(mode, predictions={"y": y})
    loss = tf.reduce_mean((y - labels) ** 2)
    if mode == trainer.ModeKeys.EVAL:
        # This metric counts the rows: every row is a true positive.
        metrics = (lambda y: {"rows": v1.metrics.true_positives(y < 1e9, y < 1e9)}), [y]
        return trainer.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
    optimizer = trainer.CrossShardOptimizer(v1.train.MomentumOptimizer(0.05, 0.9))
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    host_call = report_replicas, [tf.reshape(loss, [1])]
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=host_call)


def report_replicas(losses: Any) -> Any:
    """Report the number of replicas whose losses the host_call has received."""
    return v1.py_func(lambda values: report(replicas=len(values)), [losses], [])


def make_estimator(model_dir: Path, **config: Any) -> trainer.TPUEstimator:
    """Return an estimator of the model, with a global batch for eight replicas."""
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
    """Train for 10 steps, in two loops of 5; return the estimator."""
    estimator = make_estimator(model_dir, tf_random_seed=1)
    return estimator.train(make_input(12), max_steps=10)


def report(**values: Any) -> None:
    """Print values as a JSON object, which `running.reported` reads."""
    # print() would write the end of the line separately, and another thread's line before it.
    sys.stdout.write(json.dumps(values, default=np.generic.item) + "\n")
    sys.stdout.flush()


def run_together(model_dir: Path) -> None:
    """Train and evaluate with input of the same length on all hosts."""
    report(same=train_model(model_dir).evaluate(make_input(3)))


def train_with_uneven_input(model_dir: Path) -> None:
    """Train and evaluate with input that ends earlier on host 0."""
    estimator = make_estimator(model_dir)
    estimator.train(make_input(7, more_on_each_host=4))
    report(step=int(estimator.get_variable_value("global_step")))
    report(uneven=estimator.evaluate(make_input(2, more_on_each_host=1)))


class TellStepHook(tf.compat.v1.train.SessionRunHook):
    """Reports the global step after each loop, when the checkpoint of the step has been saved."""

    def begin(self) -> None:
        self._step = v1.train.get_global_step()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        report(step=int(run_context.session.run(self._step)))


def run_endless(model_dir: Path) -> None:
    """Train without end, and save a checkpoint after each loop."""
    estimator = make_estimator(model_dir, save_checkpoints_steps=5)
    estimator.train(lambda params: make_input(4)(params).repeat(), hooks=[TellStepHook()])


def receive() -> Any:
    """Return a receiver with a placeholder for each feature."""
    names = {"a": 1, "b": 2}
    features = {name: v1.placeholder(tf.float32, [None, size]) for name, size in names.items()}
    return trainer.export.ServingInputReceiver(features, features)


def run_schedule(model_dir: Path) -> None:
    """Call train_and_evaluate; then use inputs that differ between hosts in length or features."""
    estimator = make_estimator(model_dir / "schedule", save_checkpoints_steps=5)
    train_spec = trainer.TrainSpec(lambda params: make_input(4)(params).repeat(), max_steps=10)
    exporter = trainer.FinalExporter("final", receive)
    eval_spec = trainer.EvalSpec(make_input(2), steps=None, exporters=exporter, throttle_secs=0)
    result = trainer.train_and_evaluate(estimator, train_spec, eval_spec)
    assert result is not None
    metrics, exported = result
    report(metrics=metrics, exported=[path.decode() for path in exported])

    train_with_uneven_input(model_dir / "uneven")

    def differ(params: Any) -> Any:
        name = "b" if params["context"].current_host == 0 else "c"
        return make_input(4)(params).map(lambda x, y: ({"a": x["a"], name: x["b"]}, y))

    try:
        estimator.train(differ, steps=5)
    except HostsDiffer as error:
        report(error=str(error))


def run_strategy(model_dir: Path) -> None:
    """Train w, 0 at first, with a worker for the label 1 and another one for the label 3."""
    v1.disable_eager_execution()
    strategy = v1.distribute.experimental.MultiWorkerMirroredStrategy()
    calls = []

    def input_fn(input_context: Any = None) -> Any:
        labels = tf.data.Dataset.from_tensor_slices([1.0, 3.0])
        if input_context is not None:
            count, index = input_context.num_input_pipelines, input_context.input_pipeline_id
            calls.append([count, index, input_context.num_replicas_in_sync])
            labels = labels.shard(count, index).repeat()
        return labels.map(lambda label: ({"x": label}, label)).batch(2)

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean((w - labels) ** 2)
        optimizer = v1.train.GradientDescentOptimizer(0.25)
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return trainer.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = trainer.RunConfig(model_dir=str(model_dir), train_distribute=strategy)
    estimator = trainer.Estimator(model_fn, config=config)
    train_spec = trainer.TrainSpec(input_fn, max_steps=2)
    eval_spec = trainer.EvalSpec(lambda: input_fn(), throttle_secs=0, start_delay_secs=0)
    result = trainer.train_and_evaluate(estimator, train_spec, eval_spec)
    assert result is not None
    report(calls=calls, metrics=result[0], w=float(estimator.get_variable_value("w")))


class ReadTableHook(tf.compat.v1.train.SessionRunHook):
    """Reads the divided table on a host that may not, and reports the error."""

    def begin(self) -> None:
        (self._table,) = (
            variable for variable in v1.global_variables() if variable.op.name == "words"
        )

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if current_group().is_first:
            return
        try:
            run_context.session.run(self._table)
        except WrongContext as error:
            report(error=str(error))


def table_ids(step: int) -> list[list[int]]:
    """Return the ids in the rows of a global batch, padded with -1.

    The rows of host 1, the second half, have more ids, so the hosts must agree on a shape.
    """
    rows = REPLICAS * ROWS
    counts = [1 + (step + row) % 2 + (2 if row >= rows // 2 else 0) for row in range(rows)]
    return [
        [(7 * row + step + place) % TABLE_ROWS if place < count else -1 for place in range(4)]
        for row, count in enumerate(counts)
    ]


def make_table_estimator(model_dir: Path, **options: Any) -> trainer.TPUEstimator:
    """An estimator with an embedding table, for batches of eight replicas' rows."""
    initial = np.arange(2 * TABLE_ROWS, dtype=np.float32).reshape(TABLE_ROWS, 2) / 50
    tpu_config = trainer.TPUConfig(
        iterations_per_loop=4,
        per_host_input_for_training=trainer.InputPipelineConfig.PER_HOST_V2,
    )
    return trainer.TPUEstimator(
        sums.model_fn,
        config=trainer.RunConfig(tpu_config, model_dir=str(model_dir), save_checkpoints_steps=4),
        train_batch_size=REPLICAS * ROWS,
        eval_batch_size=REPLICAS * ROWS,
        embedding_config_spec=sums.spec(
            AdagradParameters(0.1),
            rows=TABLE_ROWS,
            initializer=v1.constant_initializer(initial),
        ),
        **options,
    )


def make_table_input(params: Any) -> Any:
    """Return the batches of this host's replicas, of 6 global batches again and again."""
    context, rows = params["context"], params["batch_size"]
    local = context.num_of_replicas_per_host
    first = context.current_host * local
    batches = [
        table_ids(step)[replica * rows : (replica + 1) * rows]
        for step in range(6)
        for replica in range(first, first + local)
    ]
    return sums.batches(*batches)(params)


def train_table(model_dir: Path) -> None:
    """Train a table whose rows are divided among the replicas of all hosts, then evaluate."""
    estimator = make_table_estimator(model_dir)
    estimator.train(make_table_input, [ReadTableHook()], max_steps=8)
    report(loss=float(estimator.evaluate(make_table_input, steps=3)["loss"]))


_MODES = {
    "table": train_table,
    "together": run_together,
    "endless": run_endless,
    "schedule": run_schedule,
    "strategy": run_strategy,
}

if __name__ == "__main__":
    _MODES[sys.argv[1]](Path(sys.argv[2]))
