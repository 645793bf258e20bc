"""The host_call of a spec, and parts of the model that outside_compilation runs on the host."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2

import trainer
from tests.trainer import programs
from tests.trainer.backends.tpu import slope
from tests.trainer.programs import variable
from tpuserve.errors import InvalidSetting
from trainer import ModeKeys

v1 = tf.compat.v1
v2 = tf.compat.v2


def _read_scalars(directory: Path) -> dict[str, dict[int, float]]:
    """Return the scalars that tf.summary of TensorFlow 2 has written: tag → step → value."""
    result: dict[str, dict[int, float]] = {}
    for path in sorted(directory.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = event_pb2.Event.FromString(record)
            for value in event.summary.value:
                array = tf.make_ndarray(value.tensor)
                result.setdefault(value.tag, {})[event.step] = float(array)
    return result


def _summaries(directory: Path) -> Any:
    """Return a `more` of `slope.model_fn` with a host_call that writes the loss of each step."""

    def host_call(step: Any, loss: Any) -> Any:
        writer = v2.summary.create_file_writer(str(directory), max_queue=1000)
        with writer.as_default():
            v2.summary.scalar("loss", tf.reduce_mean(loss), step=step[0])
            return v1.summary.all_v2_summary_ops()

    def more(mode: str, loss: Any, **_: Any) -> dict[str, Any]:
        if mode == ModeKeys.PREDICT:
            return {}
        step = tf.reshape(v1.train.get_global_step(), [1])
        return {"host_call": (host_call, [step, tf.reshape(loss, [1])])}

    return more


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.numeric
def test_a_host_call_writes_a_summary_of_every_step(compiled: bool, tmp_path: Path) -> None:
    with slope.tpu(4, compiled=compiled):
        estimator_on_tpu = slope.estimator(tmp_path / "model", _summaries(tmp_path / "host"))
        estimator_on_tpu.train(slope.ones(), max_steps=6)
    losses = _read_scalars(tmp_path / "host")["loss"]
    assert len(losses) == 6
    assert [losses[step] for step in sorted(losses)] == pytest.approx(slope.losses(6))


@pytest.mark.parametrize("compile_step", [False, "auto"])
@pytest.mark.numeric
def test_a_host_call_runs_in_every_step_of_a_loop_off_the_tpu(
    compile_step: Any, tmp_path: Path
) -> None:
    # Only on a TPU does tf.estimator leave out calls.
    tpu_config = trainer.TPUConfig(8, experimental_host_call_every_n_steps=3)
    config = trainer.RunConfig(tpu_config, compile_step=compile_step)
    more = _summaries(tmp_path / "host")

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        return spec._replace(**more(mode=mode, loss=spec.loss))

    estimator = trainer.TPUEstimator(
        model_fn, str(tmp_path / "model"), config, params={"rate": 0.5}, use_tpu=False
    )
    estimator.train(programs.ones(), max_steps=18)
    # 1 - w is 1, 1/2, 1/4, ... at the start of each step, and the loss is half its square.
    expected = {step: 0.5 * 0.25**step for step in range(18)}
    assert _read_scalars(tmp_path / "host")["loss"] == pytest.approx(expected, rel=1e-4, abs=1e-12)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
@pytest.mark.numeric
def test_a_host_call_every_third_step_counts_from_the_start_of_each_loop(tmp_path: Path) -> None:
    with slope.tpu():
        every = {"experimental_host_call_every_n_steps": 3}
        more = _summaries(tmp_path / "host")
        slope.estimator(tmp_path / "model", more, tpu_config=every).train(
            slope.ones(), max_steps=10
        )
    losses = _read_scalars(tmp_path / "host")["loss"]
    # Loops of steps 0 to 3, 4 to 7, 8 and 9.
    expected = [slope.losses(10)[step] for step in (0, 3, 4, 7, 8)]
    assert [losses[step] for step in sorted(losses)] == pytest.approx(expected)


def test_a_host_call_runs_in_evaluation_too(tmp_path: Path) -> None:
    with slope.tpu():
        estimator_on_tpu = slope.estimator(tmp_path / "model", _summaries(tmp_path / "host"))
        estimator_on_tpu.evaluate(slope.ones(3))
    assert list(_read_scalars(tmp_path / "host")["loss"].values()) == [0.5]


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_a_host_call_gets_the_rows_of_all_replicas_in_order(tmp_path: Path) -> None:
    calls: list[Any] = []

    def more(features: Any, **_: Any) -> dict[str, Any]:
        def take(x: Any) -> Any:
            return tf.numpy_function(lambda array: calls.append(array.ravel().tolist()), [x], [])

        return {"host_call": (take, {"x": features["x"]})}

    def input_fn(params: Any) -> Any:
        x = np.arange(8, dtype=np.float32).reshape([8, 1])
        return tf.data.Dataset.from_tensor_slices(({"x": x}, x)).batch(4, drop_remainder=True)

    with slope.tpu(4):
        slope.estimator(tmp_path, more).train(input_fn, steps=2)
    assert calls == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_a_host_call_gets_the_global_step_before_its_update(tmp_path: Path) -> None:
    calls: list[Any] = []

    def more(**_: Any) -> dict[str, Any]:
        def take(step: Any) -> Any:
            return tf.numpy_function(lambda array: calls.append(array.tolist()), [step], [])

        # The graph has this read after the train_op, and no control dependency orders the two.
        return {"host_call": (take, [tf.reshape(v1.train.get_global_step(), [1])])}

    with slope.tpu(2):
        slope.estimator(tmp_path, more).train(slope.ones(), steps=3)
    assert calls == [[0, 0], [1, 1], [2, 2]]


def test_a_host_call_without_tensors_is_refused(tmp_path: Path) -> None:
    def more(**_: Any) -> dict[str, Any]:
        return {"host_call": (tf.no_op, [])}

    with (
        slope.tpu(2),
        pytest.raises(InvalidSetting, match=r"has the tensors \[\]. .* at least one"),
    ):
        slope.estimator(tmp_path, more).train(slope.ones(), steps=3)


@pytest.mark.slow
@pytest.mark.on_pjrt_too
def test_each_replica_drops_out_different_units(tmp_path: Path) -> None:
    calls: list[Any] = []

    def more(features: Any, **_: Any) -> dict[str, Any]:
        units = tf.nn.dropout(tf.ones([1, 64]), rate=0.5)

        def take(x: Any) -> Any:
            return tf.numpy_function(lambda array: calls.append(array), [x], [])

        return {"host_call": (take, [units])}

    with slope.tpu(2):
        estimator_on_tpu = slope.estimator(tmp_path, more, config={"tf_random_seed": 1})
        estimator_on_tpu.train(slope.ones(), steps=3)
    masks = {tuple(row) for step in calls for row in step}
    assert np.shape(calls) == (3, 2, 64)
    assert len(masks) == 6
    assert {value for mask in masks for value in mask} == {0.0, 2.0}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.numeric
def test_a_part_of_the_model_runs_on_the_host(compiled: bool, tmp_path: Path) -> None:
    values: list[float] = []

    def note(x: Any) -> Any:
        values.append(float(x[0, 0]))
        return x

    def on_host(x: Any) -> Any:
        return tf.numpy_function(note, [x], x.dtype)

    def build(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        x = v1.tpu.outside_compilation(on_host, features["x"])
        x.set_shape(features["x"].shape)
        loss = tf.reduce_mean((x * w - labels) ** 2) / 2.0
        optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.5))
        step = v1.train.get_global_step()
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, step))

    with slope.tpu(2, compiled=compiled):
        config = trainer.RunConfig(trainer.TPUConfig(2), model_dir=str(tmp_path))
        trainer.TPUEstimator(build, config=config, train_batch_size=4).train(
            slope.ones(), max_steps=4
        )
    assert values == [1.0] * 8  # Two replicas, four steps.
    assert variable(tmp_path, "w") == pytest.approx(1 - 0.5**4)
