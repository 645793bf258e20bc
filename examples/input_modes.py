"""Print the rows that each core gets in a step, in each of the five input modes.

    $ python examples/input_modes.py
    PER_SHARD_V1: 4 calls for 2 rows each; cores got 0 1 | 10 11 | 20 21 | 30 31
    PER_HOST_V1: 2 calls for 4 rows each; cores got 0 1 | 2 3 | 10 11 | 12 13
    PER_HOST_V2: 2 calls for 2 rows each; cores got 0 1 | 2 3 | 10 11 | 12 13
    BROADCAST: 1 calls for 8 rows each; cores got 0 1 2 3 4 5 6 7, all the same
    SLICED: 1 calls for 8 rows each; cores got 0 1 | 2 3 | 4 5 | 6 7

The global batch size is 8, and the 4 cores are on 2 hosts. Call n of input_fn returns the rows 10n,
10n + 1, ...
"""

import tempfile

import tensorflow.compat.v1 as tf

import tpuserve
import trainer

calls, batches = [], []


def input_fn(params):
    _, number, _, _ = params["context"].current_input_fn_deployment()
    calls.append(params["batch_size"])
    if params["returns_tensors"]:
        return 10 * number + tf.range(params["batch_size"])
    rows = tf.data.Dataset.range(10 * number, 10 * number + 10).repeat()
    rows = rows.map(lambda row: tf.cast(row, tf.int32))  # A TPU computes slowly with int64.
    return rows.batch(params["batch_size"], drop_remainder=True)


def model_fn(features, labels, mode, params):
    def host_call(rows):
        return tf.numpy_function(batches.append, [rows], [])

    return trainer.TPUEstimatorSpec(
        mode,
        loss=tf.reduce_mean(tf.cast(features, tf.float32)),
        train_op=tf.train.get_global_step().assign_add(1),
        host_call=(host_call, [tf.reshape(features, [1, params["batch_size"]])]),
    )


def print_rows(mode):
    calls.clear()
    batches.clear()
    with tempfile.TemporaryDirectory() as directory:
        config = trainer.RunConfig(
            trainer.TPUConfig(1, per_host_input_for_training=mode), model_dir=directory
        )
        params = {"returns_tensors": mode == trainer.InputPipelineConfig.PER_SHARD_V1}
        trainer.TPUEstimator(model_fn, config=config, params=params, train_batch_size=8).train(
            input_fn, max_steps=1
        )
    per_core = " | ".join(" ".join(map(str, rows)) for rows in batches[0])
    same = ", all the same" if mode == trainer.InputPipelineConfig.BROADCAST else ""
    print(f"{mode.name}: {len(calls)} calls for {calls[0]} rows each; cores got {per_core}{same}")


if __name__ == "__main__":
    with tpuserve.emulated_tpu(cores=4, hosts=2):
        for mode in trainer.InputPipelineConfig:
            print_rows(mode)
