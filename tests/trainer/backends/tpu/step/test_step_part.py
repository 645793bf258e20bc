"""Step parts: a new part works in training, evaluation and prediction without changes there."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer import programs
from trainer.backends import registry
from trainer.backends.base import ExecutionBackend
from trainer.backends.tpu.step.step_part import StepPart
from trainer.infeed import ReplicaBatch


class RowSumPart(StepPart):
    """Adds a feature inside the step, and sends each replica's sum of x to the host."""

    name = "row_sum"

    def __init__(self, has_host_ops: bool) -> None:
        self._has_host_ops = has_host_ops
        self.received_sums: list[list[float]] = []
        self.hook = CountingHook()

    def dequeue(self, batch: ReplicaBatch) -> ReplicaBatch:
        features = {**batch.features, "twice": 2.0 * batch.features["x"]}
        return ReplicaBatch(features, batch.labels, batch.mask)

    def outfeed(self, spec: Any, batch: ReplicaBatch) -> Any:
        return {"sum": tf.reshape(tf.reduce_sum(batch.features["twice"]), [1])}

    def host_ops(self, tensors: Any) -> Any:
        return {"sum": tensors["sum"] + 100.0} if self._has_host_ops else None

    def receive(self, values: Any) -> None:
        self.received_sums.append(values["sum"].tolist())

    def hooks(self) -> Sequence[Any]:
        return [self.hook]


class CountingHook(tf.compat.v1.train.SessionRunHook):
    """Counts the runs of a session."""

    runs = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.runs += 1


@pytest.fixture(autouse=True)
def _two_cores() -> Iterator[None]:
    with tpuserve.emulated_tpu(cores=2, compiled=False):
        yield


class EstimatorWithPart(trainer.TPUEstimator):
    """An estimator whose TPU backend has one more step part."""

    part: StepPart

    def _select_backend(self, mode: str) -> ExecutionBackend:
        return registry.create_backend(registry.TPU, self._program, mode, step_parts=[self.part])


def estimator(model_dir: Path, part: StepPart) -> EstimatorWithPart:
    """A TPUEstimator of the slope model on two replicas, with two rows in a global batch."""
    built = trainer.TPUEstimator(
        programs.slope_model_fn,
        config=trainer.RunConfig(trainer.TPUConfig(2), model_dir=str(model_dir)),
        params={"rate": 0.5},
        train_batch_size=2,
        eval_batch_size=2,
        predict_batch_size=2,
    )
    built.__class__ = EstimatorWithPart
    assert isinstance(built, EstimatorWithPart)
    built.part = part
    return built


def counting_rows(rows: int, repeats: int = 1) -> Any:
    """Return a Dataset with x = 1, 2, ..., `rows`, in batches of two rows."""

    def input_fn(params: Any) -> Any:
        x = np.arange(1, rows + 1, dtype=np.float32).reshape([-1, 1])
        dataset = tf.data.Dataset.from_tensor_slices(({"x": x}, x)).repeat(repeats)
        return dataset.batch(params["batch_size"], drop_remainder=rows % 2 == 0)

    return input_fn


@pytest.mark.parametrize("has_host_ops", [False, True])
def test_a_part_receives_the_values_of_all_replicas_in_training(
    tmp_path: Path, has_host_ops: bool
) -> None:
    part = RowSumPart(has_host_ops)
    estimator(tmp_path, part).train(counting_rows(4), max_steps=2)
    added = 100.0 if has_host_ops else 0.0
    assert part.received_sums == [[2 + added, 4 + added], [6 + added, 8 + added]]
    assert part.hook.runs == 1


@pytest.mark.slow
@pytest.mark.parametrize("has_host_ops", [False, True])
@pytest.mark.numeric
def test_a_part_receives_no_padding_in_evaluation_and_prediction(
    tmp_path: Path, has_host_ops: bool
) -> None:
    added = 100.0 if has_host_ops else 0.0
    expected = [[2 + added, 4 + added], [6 + added]]
    part = RowSumPart(has_host_ops)
    model = estimator(tmp_path, part)
    assert model.evaluate(counting_rows(3))["loss"] == pytest.approx((1 + 4 + 9) / 6)
    assert part.received_sums == expected
    model.part = part = RowSumPart(has_host_ops)
    assert len(list(model.predict(counting_rows(3)))) == 3
    assert part.received_sums == expected


def test_parts_do_nothing_unless_they_override_a_method() -> None:
    class Silent(StepPart):
        name = "silent"

    part, batch = Silent(), ReplicaBatch({"x": 1}, None)
    assert part.dequeue(batch) is batch
    assert (part.step_ops(None), part.outfeed(None, batch), part.host_ops({})) == ((), None, None)
    assert part.hooks() == ()
