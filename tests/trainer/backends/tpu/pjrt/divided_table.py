"""A model of one table whose rows are divided among the replicas of a TPU.

A row of a batch has an id and a label, and its prediction is the sum of the id's row of the table.
Each replica finds the rows that it owns for the ids of all replicas, and changes them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import trainer
from tpuserve.graph import row_sharding
from tpuserve.graph.row_sharding import RowSharding

v1 = tf.compat.v1

# The rows of the table are no multiple of the replicas, and each of up to 8 replicas owns some.
ROWS, DIM, BATCH, RATE = 23, 4, 16, 0.5
INITIAL = np.arange(ROWS * DIM, dtype=np.float32).reshape(ROWS, DIM) / (ROWS * DIM)


def model_fn(strategy: str, replicas: int, initial: Any = INITIAL) -> Callable[..., Any]:
    """The model_fn for so many replicas, and a table with the initial values."""
    sharding = RowSharding(strategy, len(initial), replicas)

    def build(features: Any, labels: Any, mode: str) -> Any:
        table = v1.get_variable(
            "table", initial.shape, initializer=v1.constant_initializer(initial)
        )
        attribute = v1.AttrValue(s=strategy.encode())
        table.handle.op._set_attr(row_sharding.ATTRIBUTE, attribute)
        replica_op = v1.GraphDef()
        replica_op.node.add(name="replica", op="XlaReplicaId")
        (replica,) = tf.import_graph_def(replica_op, return_elements=["replica:0"], name="")

        def collect(value: Any) -> Any:
            """The values of all replicas: [replicas, ...]."""
            own = tf.cast(tf.equal(tf.range(replicas), replica), value.dtype)
            own = tf.reshape(own, [replicas, *[1] * value.shape.rank])
            return v1.tpu.cross_replica_sum(own * value)

        ids = collect(features["ids"])
        is_own = tf.equal(sharding.owner(ids), replica)
        rows = tf.where(is_own, ids, sharding.first_row(replica))
        values = tf.raw_ops.ResourceGather(resource=table.handle, indices=rows, dtype=tf.float32)
        own = tf.where(is_own[..., None], values, tf.zeros_like(values))
        mine = tf.gather(v1.tpu.cross_replica_sum(own), replica)
        y = tf.reduce_sum(mine, -1)
        if mode == trainer.ModeKeys.PREDICT:
            return trainer.TPUEstimatorSpec(mode, predictions={"y": y})
        loss = tf.reduce_mean((y - labels) ** 2)
        if mode == trainer.ModeKeys.EVAL:
            metrics = (lambda y: {"largest": v1.metrics.mean(tf.reduce_max(y))}), [y]
            return trainer.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
        (gradient,) = tf.gradients(loss, mine)
        gradients = collect(gradient / replicas)
        updates = tf.where(is_own[..., None], -RATE * gradients, tf.zeros_like(gradients))
        update = tf.raw_ops.ResourceScatterAdd(resource=table.handle, indices=rows, updates=updates)
        count = v1.train.get_global_step().assign_add(1, read_value=False)
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=tf.group(update, count))

    return build


def batches(count: int) -> tuple[Any, Any]:
    """The ids and labels of so many global batches: [count, BATCH] each. Ids repeat."""
    random = np.random.default_rng(3)
    ids = random.integers(ROWS, size=(count, BATCH)).astype(np.int32)
    return ids, random.normal(size=(count, BATCH)).astype(np.float32)


def input_fn(params: Any) -> Any:
    """The rows of this host, of 20 batches and again from the first."""
    context, rows = params["context"], params["batch_size"]
    ids, labels = (
        values.reshape(20, context.num_hosts, -1, rows)[:, context.current_host].reshape(-1, rows)
        for values in batches(20)
    )
    return tf.data.Dataset.from_tensor_slices(({"ids": ids}, labels)).repeat()


FEW_IDS = np.array([0, 22, 7, 7, 13], np.int32)


def few_ids(params: Any) -> Any:
    """Fewer rows than a batch, for a prediction."""
    rows = tf.data.Dataset.from_tensor_slices({"ids": FEW_IDS})
    return rows.batch(params["batch_size"])


def estimator(
    model_dir: Path, strategy: str, replicas: int, initial: Any = INITIAL, **config: Any
) -> Any:
    """A TPUEstimator of the model."""
    tpu_config = trainer.TPUConfig(
        iterations_per_loop=5,
        per_host_input_for_training=trainer.InputPipelineConfig.PER_HOST_V2,
    )
    return trainer.TPUEstimator(
        model_fn(strategy, replicas, initial),
        config=trainer.RunConfig(tpu_config, model_dir=str(model_dir), **config),
        train_batch_size=BATCH,
        eval_batch_size=BATCH,
        predict_batch_size=BATCH,
    )


def train_table(steps: int, table: Any = INITIAL) -> Any:
    """The table after so many steps from the first batch, computed by NumPy in float64."""
    table = table.astype(np.float64)
    for ids, labels in [*zip(*batches(20), strict=True)][:steps]:
        slope = 2 * (table[ids].sum(-1) - labels) / BATCH
        np.add.at(table, ids, -RATE * slope[:, None])
    return table
