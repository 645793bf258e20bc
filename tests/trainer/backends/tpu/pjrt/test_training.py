"""Training on PJRT devices: same weights as on other devices; unsupported settings are refused."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tests.trainer.backends.tpu import slope
from tpuserve.errors import InvalidSetting, UnsupportedOnTpu
from tpuserve.pjrt.step_program import StepProgram

pytest.importorskip("jax")

pytestmark = pytest.mark.slow

v1 = tf.compat.v1

CORES, BATCH = 4, 8


def mlp(rate: float = 0.0) -> Callable[..., Any]:
    """Return the model_fn of a network with two layers, momentum, and dropout of this rate."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        hidden = tf.tanh(features @ weights("hidden", [6, 5]))
        if rate:
            hidden = tf.nn.dropout(hidden, rate=rate)
        loss = tf.reduce_mean((hidden @ weights("out", [5, 1]) - labels) ** 2)
        optimizer = trainer.CrossShardOptimizer(v1.train.MomentumOptimizer(0.02, 0.9))
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def weights(name: str, shape: list[int]) -> Any:
    return v1.get_variable(name, shape, initializer=v1.glorot_uniform_initializer(seed=1))


def rows(params: Any) -> Any:
    """Return a Dataset that repeats one batch; a label is the tanh of the sum of the features."""
    features = np.random.default_rng(1).normal(size=(BATCH, 6)).astype(np.float32)
    labels = np.tanh(features.sum(1, keepdims=True))
    dataset = tf.data.Dataset.from_tensor_slices((features, labels))
    return dataset.repeat().batch(params["batch_size"], drop_remainder=True)


def train(model_dir: Path, kind: str, max_steps: int, rate: float = 0.0, **config: Any) -> None:
    """Train the network of `mlp` on the device `kind`: "cpu", "emulated" or "pjrt"."""
    settings = {"tf_random_seed": 1, **config}
    estimator = trainer.TPUEstimator(
        mlp(rate),
        config=trainer.RunConfig(trainer.TPUConfig(5), model_dir=str(model_dir), **settings),
        use_tpu=kind != "cpu",
        train_batch_size=BATCH,
    )
    with nullcontext() if kind == "cpu" else slope.tpu(CORES, kind=kind):
        estimator.train(rows, max_steps=max_steps)


def values(model_dir: Path) -> dict[str, Any]:
    """Return the variables of the newest checkpoint: name → array."""
    reader = tf.train.load_checkpoint(str(model_dir))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_equal(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Assert that two trainings have the same variables and values.

    A step adds 8 gradients below 2 in another order, which changes their float32 sum by up to 1e-6.
    The rate 0.02 and the momentum 0.9 make it 2e-7 in a weight, and the rounding of a weight below
    2 adds 1.2e-7. The errors of 20 steps add up to 7e-6, and the later steps do not enlarge them.
    """
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_allclose(first[name], second[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.numeric
def test_checkpoints_go_round_from_cpu_to_pjrt_to_emulated_tpu_to_cpu(tmp_path: Path) -> None:
    train(tmp_path / "cpu", "cpu", 20)
    for kind, max_steps in (("cpu", 5), ("pjrt", 10), ("emulated", 15), ("cpu", 20)):
        train(tmp_path / "ring", kind, max_steps)
    expected, actual = values(tmp_path / "cpu"), values(tmp_path / "ring")
    assert actual["global_step"] == 20
    assert sorted(actual) == [
        "global_step",
        "hidden",
        "hidden/Momentum",
        "out",
        "out/Momentum",
    ]
    assert_equal(actual, expected)


@pytest.mark.numeric
def test_pjrt_devices_train_the_weights_of_the_emulated_tpu(tmp_path: Path) -> None:
    train(tmp_path / "pjrt", "pjrt", 20)
    train(tmp_path / "emulated", "emulated", 20)
    assert_equal(values(tmp_path / "pjrt"), values(tmp_path / "emulated"))


@pytest.mark.numeric
def test_200_steps_have_the_bits_of_the_emulated_tpu(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        # The gradient is a sum of small integers, the rates are powers of 2: a step rounds only
        # where it adds one number to another, whatever XLA fuses.
        loss = tf.reduce_sum(features @ weights("w", [6, 2]) * labels)
        optimizer = v1.train.MomentumOptimizer(2.0**-7, 0.5)
        train_op = trainer.CrossShardOptimizer(
            optimizer, reduction=v1.losses.Reduction.SUM
        ).minimize(loss, v1.train.get_global_step())
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn(params: Any) -> Any:
        numbers = np.random.default_rng(2).integers(-9, 9, [210 * BATCH, 8]).astype(np.float32)
        dataset = tf.data.Dataset.from_tensor_slices((numbers[:, :6], numbers[:, 6:]))
        return dataset.batch(params["batch_size"], drop_remainder=True)

    def train_with(kind: str, iterations: int) -> dict[str, Any]:
        model_dir = tmp_path / f"{kind}_{iterations}"
        config = trainer.RunConfig(trainer.TPUConfig(iterations), model_dir=str(model_dir))
        estimator = trainer.TPUEstimator(model_fn, config=config, train_batch_size=BATCH)
        with slope.tpu(CORES, kind=kind):
            estimator.train(input_fn, max_steps=200)
        return values(model_dir)

    expected = train_with("emulated", 20)
    # Dispatches of 7 steps, and of 64 and 36 steps.
    for actual in (train_with("pjrt", 7), train_with("pjrt", 100)):
        assert actual.pop("global_step") == 200
        for name, value in actual.items():
            np.testing.assert_array_equal(value, expected[name])
    assert len(set(np.ravel(actual["w"]))) == 12


@pytest.mark.numeric
def test_dropout_is_the_same_with_and_without_a_restart(tmp_path: Path) -> None:
    train(tmp_path / "once", "pjrt", 10, rate=0.5)
    for max_steps in (5, 10):
        train(tmp_path / "twice", "pjrt", max_steps, rate=0.5)
    assert_equal(values(tmp_path / "once"), values(tmp_path / "twice"))


def test_weights_leave_the_devices_only_for_checkpoints(tmp_path: Path) -> None:
    read: list[str] = []
    get_variables = StepProgram.get_variables

    def recording(self: StepProgram, indices: Any) -> Any:
        read.extend(self.step.variables[index].name for index in indices)
        return get_variables(self, indices)

    with mock.patch.object(StepProgram, "get_variables", recording):
        train(tmp_path, "pjrt", 20, save_checkpoints_steps=10)
    # Four loops of 5 steps; the checkpoints of steps 10 and 20.
    assert read.count("last_step/loss") == 4
    assert read.count("hidden") == 2


def test_variable_that_a_hook_assigns_reaches_the_devices(tmp_path: Path) -> None:
    class AssignOne(tf.compat.v1.train.SessionRunHook):
        def begin(self) -> None:
            (w,) = v1.trainable_variables()
            self._assign, self._count = w.assign(1.0), 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self._count += 1
            if self._count == 1:
                run_context.session.run(self._assign)

    with slope.tpu(2, kind="pjrt"):
        # The gradient is zero at w = 1, so the second loop changes nothing.
        slope.estimator(tmp_path).train(slope.ones(), [AssignOne()], max_steps=8)
    assert programs.variable(tmp_path, "w") == 1.0


def test_host_call_may_read_a_variable_of_the_step(tmp_path: Path) -> None:
    read: list[int] = []

    def record(step: Any) -> Any:
        read.append(int(step))
        return step

    def host_call(row: Any) -> Any:
        step = v1.train.get_global_step().read_value()
        with tf.control_dependencies([row]):
            return tf.py_function(record, [step], tf.int64)

    def more(features: Any, **step_values: Any) -> dict[str, Any]:
        return {"host_call": (host_call, [features["x"]])}

    with slope.tpu(2, kind="pjrt"):
        slope.estimator(tmp_path, more).train(slope.ones(), max_steps=8)
    # The session sees the step of the devices only between dispatches of four steps each.
    assert len(read) == 8
    assert set(read) <= {0, 4, 8}


def test_model_parallelism_is_refused(tmp_path: Path) -> None:
    estimator = slope.estimator(tmp_path, tpu_config={"num_cores_per_replica": 2})
    with (
        slope.tpu(4, kind="pjrt"),
        pytest.raises(InvalidSetting, match="num_cores_per_replica is 2, and a model cannot be"),
    ):
        estimator.train(slope.ones(), max_steps=1)


@pytest.mark.parametrize(
    ("op", "build"),
    [
        ("Print", lambda y: v1.tpu.outside_compilation(lambda: v1.Print(y, [y]))),
        ("StringFormat", lambda y: tf.strings.length(tf.strings.format("{}", [y]))),
    ],
)
def test_op_without_a_way_is_refused_with_its_line(tmp_path: Path, op: str, build: Any) -> None:
    def more(mode: str, y: Any, **step_values: Any) -> dict[str, Any]:
        extra = tf.reshape(tf.cast(build(y), tf.float32), [-1])
        return {"host_call": (lambda extra: tf.identity(extra), [extra])}

    with (
        slope.tpu(2, kind="pjrt"),
        pytest.raises(UnsupportedOnTpu, match=rf"{op} .*test_training\.py:\d+") as refused,
    ):
        slope.estimator(tmp_path, more).train(slope.ones(), max_steps=1)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())
