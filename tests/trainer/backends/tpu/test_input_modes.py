"""The table of batch sizes, row by row: params["batch_size"], and the rows of each replica."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer.backends.tpu import slope
from tpuserve.errors import InvalidSetting
from trainer.config.run_config import InputPipelineConfig as Input

v1 = tf.compat.v1

_BATCH = 64


class RecordingModel:
    """Runs an estimator, and records what its input_fn, model_fn and host_call have received.

    Each row of the input is one number: 1000 times the number of the call of input_fn, plus the
    number of the row in that call.
    """

    def __init__(self, model_dir: Path, per_host: Any = True, **tpu_config: Any) -> None:
        config = trainer.TPUConfig(2, per_host_input_for_training=per_host, **tpu_config)
        self.is_dataset = config.per_host_input_for_training != Input.PER_SHARD_V1
        self.input_sizes: list[int] = []
        self.model_sizes: list[int] = []
        self.deployments: list[Any] = []
        self.hosts: list[int] = []
        self.has_use_tpu: set[Any] = set()
        self.replicas_of_call: dict[int, list[int]] = {}
        self.rows_of_steps: list[list[int]] = []
        self.estimator = trainer.TPUEstimator(
            self._model_fn,
            config=trainer.RunConfig(config, model_dir=str(model_dir), log_step_count_steps=None),
            params={"mine": 1},
            train_batch_size=_BATCH,
            eval_batch_size=_BATCH,
            predict_batch_size=_BATCH,
        )

    def _input_fn(self, params: Any) -> Any:
        assert params["mine"] == 1
        size, context = params["batch_size"], params["context"]
        call = len(self.input_sizes)
        self.input_sizes.append(size)
        self.deployments.append(context.current_input_fn_deployment())
        self.hosts.append(context.current_host)
        self.has_use_tpu.add("use_tpu" in params)
        if not self.is_dataset:
            return {"n": tf.range(size) + 1000 * call}
        numbers = tf.data.Dataset.range(1000 * call, 1000 * call + 2 * _BATCH)
        numbers = numbers.map(lambda n: {"n": tf.cast(n, tf.int32)})
        return numbers.batch(size, drop_remainder=True)

    def _model_fn(self, features: Any, labels: Any, mode: str, params: Any) -> Any:
        assert params["mine"] == 1
        assert params["use_tpu"] is True
        assert params["context"].num_replicas >= 1
        self.model_sizes.append(params["batch_size"])
        assert features["n"].shape == [params["batch_size"]]
        w = v1.get_variable("w", initializer=1.0)
        if mode == trainer.ModeKeys.PREDICT:
            return trainer.TPUEstimatorSpec(mode, predictions={"n": features["n"]})
        loss = w * tf.reduce_mean(tf.cast(features["n"], tf.float32))
        host_call = (self._take, [features["n"]])
        if mode == trainer.ModeKeys.EVAL:
            return trainer.TPUEstimatorSpec(mode, loss=loss, host_call=host_call)
        train_op = v1.train.get_global_step().assign_add(1)
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=host_call)

    def _take(self, numbers: Any) -> Any:
        def take(result: Any) -> Any:
            self.rows_of_steps.append(result.tolist())
            return result

        return tf.numpy_function(take, [numbers], tf.int32)

    def train(self) -> tuple[int, int]:
        self._forget()
        self.estimator.train(self._input_fn, steps=2)
        return self._sizes()

    def evaluate(self) -> tuple[int, int]:
        self._forget()
        self.estimator.evaluate(self._dataset_fn, steps=1)
        return self._sizes()

    def predict(self) -> tuple[int, int]:
        self._forget()
        rows = [int(row["n"]) for row in self.estimator.predict(self._dataset_fn)]
        assert rows == list(range(2 * _BATCH))
        return self._sizes()

    def _forget(self) -> None:
        for column in (self.input_sizes, self.model_sizes, self.deployments, self.hosts):
            column.clear()
        self.rows_of_steps.clear()

    def _dataset_fn(self, params: Any) -> Any:
        was, self.is_dataset = self.is_dataset, True
        try:
            return self._input_fn(params)
        finally:
            self.is_dataset = was

    def _sizes(self) -> tuple[int, int]:
        assert self.has_use_tpu == {False}
        assert len(set(self.input_sizes)) == 1
        (model_size,) = self.model_sizes
        return self.input_sizes[0], model_size


class Row(NamedTuple):
    """One row of the table.

    Attributes:
      hosts: the number of hosts, of 8 cores each.
      settings: the input mode, and other arguments of TPUConfig.
      train: (batch size of input_fn, batch size of model_fn); None if the mode is refused.
      evaluate: the same for evaluation.
      predict: the same for prediction.
      calls: the number of calls of input_fn in training.
      replicas_of_call: the number of replicas that each of these calls feeds.
    """

    hosts: int
    settings: dict[str, Any]
    train: Any
    evaluate: Any
    predict: Any
    calls: int
    replicas_of_call: int


_PER_SHARD, _V1, _V2 = False, True, Input.PER_HOST_V2
_ALL, _SLICED = Input.BROADCAST, {"eval_training_input_configuration": Input.SLICED}
_TABLE = [
    Row(1, {"per_host": _PER_SHARD}, (8, 8), (64, 8), (64, 8), 8, 1),
    Row(1, {"per_host": _V1}, (64, 8), (64, 8), (64, 8), 1, 8),
    Row(1, {"per_host": _V2}, (8, 8), (8, 8), (8, 8), 1, 8),
    Row(1, {"per_host": _ALL}, (64, 64), (64, 64), (64, 64), 1, 8),
    Row(1, {"per_host": _V1, **_SLICED}, (64, 8), (64, 8), (64, 8), 1, 8),
    Row(1, {"per_host": _V1, "num_cores_per_replica": 2}, (64, 16), (64, 16), (64, 16), 1, 4),
    Row(1, {"per_host": _V2, "num_cores_per_replica": 2}, (16, 16), (16, 16), (16, 16), 1, 4),
    Row(1, {"per_host": _ALL, "num_cores_per_replica": 2}, (64, 64), (64, 64), (64, 64), 1, 4),
    Row(4, {"per_host": _PER_SHARD}, (2, 2), None, None, 32, 1),
    Row(4, {"per_host": _V1}, (16, 2), None, None, 4, 8),
    Row(4, {"per_host": _V2}, (2, 2), (2, 2), None, 4, 8),
    Row(4, {"per_host": _ALL}, (64, 64), (64, 64), (64, 64), 1, 32),
    Row(4, {"per_host": _V1, **_SLICED}, (16, 2), (64, 2), (64, 2), 4, 8),
    Row(4, {"per_host": _V2, "num_cores_per_replica": 16}, (32, 32), (32, 32), None, 2, 1),
]


def _name(row: Row) -> str:
    settings = "-".join(str(int(value)) for value in row.settings.values())
    return f"{row.hosts}x8-{settings}"


@pytest.mark.slow
@pytest.mark.parametrize("row", _TABLE, ids=_name)
def test_the_batch_size_table(row: Row, tmp_path: Path) -> None:
    with tpuserve.emulated_tpu(8 * row.hosts, row.hosts, compiled=False):
        _check_row(row, tmp_path)


# The five input modes on one host. A PJRT device is a whole replica.
@pytest.mark.slow
@pytest.mark.parametrize("row", _TABLE[:5], ids=_name)
def test_the_batch_size_table_on_pjrt_devices(row: Row, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    with slope.tpu(8, kind="pjrt"):
        _check_row(row, tmp_path)


def _check_row(row: Row, tmp_path: Path) -> None:
    """Check a row of the table in the `slope.tpu` context that the caller has entered."""
    recorder = RecordingModel(tmp_path, **row.settings)
    assert recorder.train() == row.train
    assert len(recorder.deployments) == row.calls
    for call, (_, index, calls, replicas) in enumerate(recorder.deployments):
        assert (index, calls, replicas) == (call, row.calls, row.replicas_of_call)
    for expected, run in ((row.evaluate, recorder.evaluate), (row.predict, recorder.predict)):
        if expected is None:
            with pytest.raises(InvalidSetting, match="hosts"):
                run()
        else:
            assert run() == expected


def _steps(settings: dict[str, Any], model_dir: Path) -> RecordingModel:
    with tpuserve.emulated_tpu(4, 2, compiled=False):
        recorder = RecordingModel(model_dir, **settings)
        recorder.train()
    return recorder


def _rows(call: int, first: int, count: int) -> list[int]:
    return list(range(1000 * call + first, 1000 * call + first + count))


def test_per_shard_v1_gives_each_replica_its_own_call(tmp_path: Path) -> None:
    recorder = _steps({"per_host": Input.PER_SHARD_V1}, tmp_path)
    assert recorder.hosts == [0, 0, 1, 1]
    step = [row for call in range(4) for row in _rows(call, 0, 16)]
    assert recorder.rows_of_steps == [step, step]


def test_per_host_v1_splits_a_batch_of_each_host(tmp_path: Path) -> None:
    recorder = _steps({"per_host": Input.PER_HOST_V1}, tmp_path)
    assert recorder.hosts == [0, 1]
    assert recorder.rows_of_steps == [
        [*_rows(0, 0, 32), *_rows(1, 0, 32)],
        [*_rows(0, 32, 32), *_rows(1, 32, 32)],
    ]


def test_per_host_v2_takes_a_batch_for_each_replica(tmp_path: Path) -> None:
    recorder = _steps({"per_host": Input.PER_HOST_V2}, tmp_path)
    assert recorder.hosts == [0, 1]
    assert recorder.rows_of_steps == [
        [*_rows(0, 0, 32), *_rows(1, 0, 32)],
        [*_rows(0, 32, 32), *_rows(1, 32, 32)],
    ]


def test_broadcast_gives_all_rows_to_all(tmp_path: Path) -> None:
    recorder = _steps({"per_host": Input.BROADCAST}, tmp_path)
    assert recorder.hosts == [0]
    # The host_call receives the tensors of the first replica alone.
    assert recorder.rows_of_steps == [_rows(0, 0, 64), _rows(0, 64, 64)]


def test_sliced_splits_one_batch_for_all_hosts(tmp_path: Path) -> None:
    with tpuserve.emulated_tpu(4, 2, compiled=False):
        recorder = RecordingModel(tmp_path, eval_training_input_configuration=Input.SLICED)
        recorder.evaluate()
    assert recorder.hosts == [0]
    assert recorder.rows_of_steps == [_rows(0, 0, 64)]
