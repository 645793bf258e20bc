"""Names of tf.contrib in a model_fn that runs on an emulated TPU, and on the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2
from tensorflow.python.tpu import tpu_function

import tpuserve
import trainer
from trainer.compat import contrib

pytestmark = [pytest.mark.slow, pytest.mark.numeric]
v1 = tf.compat.v1

STEPS = 4


def _input_fn(params: Any) -> Any:
    x = np.array([[1, 2, -1], [0, 3, 1], [-2, 1, 1], [1, -1, 2]], np.float32)
    rows = {"x": x, "id": np.array([0, 1, 1, 3], np.int32)}
    data = tf.data.Dataset.from_tensor_slices((rows, x.sum(1, keepdims=True)))
    return data.repeat().apply(
        contrib.data.map_and_batch(
            lambda x, y: (x, y), params["batch_size"], drop_remainder=True, num_parallel_calls=1
        )
    )


def _layers(features: Any, labels: Any) -> Any:
    x = contrib.layers.layer_norm(features["x"], begin_norm_axis=-1)
    with contrib.framework.arg_scope(
        [contrib.layers.fully_connected],
        weights_initializer=contrib.layers.xavier_initializer(seed=1),
        weights_regularizer=contrib.layers.l2_regularizer(0.01),
    ):
        x = contrib.layers.fully_connected(x, 4, activation_fn=tf.tanh)
        y = contrib.layers.fully_connected(x, 1, activation_fn=None)
    regularization = v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)
    loss = tf.reduce_mean(tf.square(y - labels)) + tf.add_n(regularization)
    train_op = contrib.layers.optimize_loss(
        loss,
        v1.train.get_global_step(),
        0.1,
        lambda rate: contrib.tpu.CrossShardOptimizer(
            contrib.opt.LARSOptimizer(rate, eeta=0.1, skip_list=["biases"])
        ),
        summaries=[],
    )
    return loss, train_op


def _recurrent(features: Any, labels: Any) -> Any:
    steps = tf.tile(features["x"][tf.newaxis], [3, 1, 1])
    lengths = tf.minimum(features["id"] + 1, 3)
    y, _ = contrib.cudnn_rnn.CudnnGRU(1, 2, seed=1)(steps, sequence_lengths=lengths)
    with v1.variable_scope("cells", initializer=v1.glorot_uniform_initializer(seed=1)):
        y, _ = contrib.rnn.TimeReversedFusedRNN(contrib.rnn.LSTMBlockFusedCell(4))(
            y, dtype=tf.float32, sequence_length=lengths
        )
        y, _ = contrib.rnn.FusedRNNCellAdaptor(contrib.rnn.LayerNormBasicLSTMCell(2))(
            y, dtype=tf.float32
        )
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(y, [0, 2])[:, tf.newaxis] - labels))
    optimizer = contrib.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.01))
    return loss, optimizer.minimize(loss, v1.train.get_global_step())


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "LARS": lambda: contrib.opt.LARSOptimizer(0.1, eeta=1.0),
    "AdamW": lambda: contrib.opt.AdamWOptimizer(0.01, 0.1),
    "MomentumW": lambda: contrib.opt.MomentumWOptimizer(0.01, 0.1, 0.9),
    "LazyAdam": lambda: contrib.opt.LazyAdamOptimizer(0.1),
    "Nadam": lambda: contrib.opt.NadamOptimizer(0.1),
    "AdaMax": lambda: contrib.opt.AdaMaxOptimizer(0.1),
    "PowerSign": lambda: contrib.opt.PowerSignOptimizer(0.1),
    "AddSign": lambda: contrib.opt.AddSignOptimizer(
        0.1, sign_decay_fn=contrib.opt.get_linear_decay_fn(10)
    ),
    "Averaged": lambda: contrib.opt.MovingAverageOptimizer(
        v1.train.MomentumOptimizer(0.1, 0.9), average_decay=0.5
    ),
}


def _optimizers(features: Any, labels: Any) -> Any:
    """Build a variable, a loss and a step for each optimizer; LazyAdam's loss reads rows of w."""
    steps = []
    losses = []
    for name, make in OPTIMIZERS.items():
        w = v1.get_variable(name, [5, 1], initializer=v1.constant_initializer(0.5))
        x = tf.pad(features["x"], [[0, 0], [0, 2]])
        y = tf.gather(w, features["id"]) if name == "LazyAdam" else tf.matmul(x, w)
        losses.append(tf.reduce_mean(tf.square(y - labels)))
        optimizer = contrib.tpu.CrossShardOptimizer(make())
        gradients = optimizer.compute_gradients(losses[-1], [w])
        # Pass the global step only to AddSign, whose decay reads it: otherwise each optimizer would
        # increment it in each step.
        global_step = v1.train.get_global_step() if name == "AddSign" else None
        steps.append(optimizer.apply_gradients(gradients, global_step))
    return tf.add_n(losses), tf.group(steps)


def _model_fn(model: Callable[..., Any], directory: Path, shards: list[Any]) -> Any:
    def host_call(step: Any, loss: Any) -> Any:
        writer = contrib.summary.create_file_writer(str(directory), max_queue=10)
        with writer.as_default(), contrib.summary.always_record_summaries():
            contrib.summary.scalar("loss", tf.reduce_mean(loss), step=step[0])
            contrib.summary.histogram("losses", loss, step=step[0])
            return contrib.summary.all_summary_ops()

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        shards.append(tpu_function.get_tpu_context().number_of_shards)
        loss, train_op = model(features, labels)
        step = tf.reshape(v1.train.get_global_step(), [1])
        call = host_call, [step, tf.reshape(loss, [1])]
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=call)

    return model_fn


def _train(model: Callable[..., Any], directory: Path, *, use_tpu: bool) -> tuple[Any, Any]:
    """Train the model; return the variables, and number_of_shards as seen by model_fn."""
    shards: list[Any] = []
    config = trainer.RunConfig(trainer.TPUConfig(2), model_dir=str(directory / "model"))
    estimator = trainer.TPUEstimator(
        _model_fn(model, directory / "host", shards),
        config=config,
        train_batch_size=4,
        use_tpu=use_tpu,
    )
    estimator.train(_input_fn, max_steps=STEPS)
    names = estimator.get_variable_names()
    return {name: estimator.get_variable_value(name) for name in names}, shards


@pytest.mark.on_pjrt_too
@pytest.mark.filterwarnings("ignore:`(tf.nn.rnn_cell|layer.add_variable):UserWarning")
@pytest.mark.parametrize("model", [_layers, _optimizers, _recurrent])
def test_training_on_two_cores_equals_training_on_the_cpu(
    model: Callable[..., Any], tmp_path: Path
) -> None:
    on_cpu, no_shards = _train(model, tmp_path / "cpu", use_tpu=False)
    with tpuserve.emulated_tpu(2, compiled=False):
        on_tpu, shards = _train(model, tmp_path / "tpu", use_tpu=True)
    assert (no_shards, shards) == ([None], [2])
    assert on_cpu["global_step"] == STEPS
    assert on_tpu.keys() == on_cpu.keys()
    for name in on_cpu:
        np.testing.assert_allclose(on_tpu[name], on_cpu[name], rtol=1e-4, atol=1e-6, err_msg=name)
    # A loop has two steps, and both devices call the host function in each step.
    for device in ("cpu", "tpu"):
        steps = _steps_by_tag(tmp_path / device / "host")
        assert steps["losses"] == steps["loss"]
        assert len(set(steps["loss"])) == STEPS


def _steps_by_tag(directory: Path) -> dict[str, list[int]]:
    """Return the steps of each scalar summary in a directory: tag → steps."""
    steps: dict[str, list[int]] = {}
    for path in directory.glob("events.out.tfevents.*"):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = event_pb2.Event.FromString(record)
            for value in event.summary.value:
                steps.setdefault(value.tag, []).append(event.step)
    return steps
