"""Training on PJRT devices with a table whose rows are divided among the devices."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.pjrt_devices import pjrt_devices
from tests.trainer import programs
from tests.trainer.backends.tpu.pjrt import divided_table
from tpuserve.files.disk_cache import EXECUTABLES_VARIABLE
from tpuserve.pjrt.step_program import StepProgram

pytest.importorskip("jax")

pytestmark = pytest.mark.slow

REPLICAS = 4


@pytest.fixture(scope="module", autouse=True)
def devices() -> Iterator[None]:
    with pjrt_devices(REPLICAS):
        yield


@pytest.fixture
def programs_made(monkeypatch: pytest.MonkeyPatch) -> list[StepProgram]:
    """The programs that have run, the last one at the end."""
    step_programs: list[StepProgram] = []
    dispatch = StepProgram.dispatch

    def recording(self: StepProgram, *arguments: Any, **options: Any) -> Any:
        step_programs.append(self)
        return dispatch(self, *arguments, **options)

    monkeypatch.setattr(StepProgram, "dispatch", recording)
    return step_programs


def assert_table(model_dir: Path, expected: Any) -> None:
    """Assert that the newest checkpoint has the table, whole.

    Each of some 20 steps adds gradients below 1 to float32 numbers below 2.
    """
    table = programs.variable(model_dir, "table")
    np.testing.assert_allclose(table, expected, rtol=0, atol=5e-6)


@pytest.mark.numeric
def test_training_evaluation_and_prediction_with_parts_of_the_table(
    tmp_path: Path, programs_made: list[StepProgram]
) -> None:
    estimator = divided_table.estimator(tmp_path, "mod", REPLICAS)
    estimator.train(divided_table.input_fn, max_steps=5)
    expected = divided_table.train_table(5)
    assert_table(tmp_path, expected)
    # The second training starts from the whole table in the checkpoint of the first.
    estimator.train(divided_table.input_fn, max_steps=12)
    expected = divided_table.train_table(7, expected)
    assert_table(tmp_path, expected)

    ids, labels = divided_table.batches(20)
    predictions = expected[ids].sum(-1)
    evaluation = estimator.evaluate(divided_table.input_fn, steps=4)
    assert evaluation["loss"] == pytest.approx(((predictions - labels)[:4] ** 2).mean(), rel=1e-5)
    predicted = [prediction["y"] for prediction in estimator.predict(divided_table.few_ids)]
    np.testing.assert_allclose(predicted, expected[divided_table.FEW_IDS].sum(-1), rtol=1e-5)
    for program in programs_made:
        (index,) = program.step.row_shardings
        assert [shard.shape for shard in program.get_shards(index)] == [(6, 4)] * REPLICAS


@pytest.mark.numeric
def test_training_with_a_divided_table_is_compiled_once_for_each_strategy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXECUTABLES_VARIABLE, str(tmp_path / "executables"))
    for number, strategy in enumerate(["div", "mod", "div"]):
        model_dir = tmp_path / str(number)
        estimator = divided_table.estimator(model_dir, strategy, REPLICAS)
        estimator.train(divided_table.input_fn, max_steps=2)
        assert_table(model_dir, divided_table.train_table(2))
    assert len(list((tmp_path / "executables").glob("*.executable"))) == 2


@pytest.mark.numeric
def test_hook_sees_and_assigns_the_whole_table(tmp_path: Path) -> None:
    tables: list[Any] = []

    class Halve(tf.compat.v1.train.SessionRunHook):
        def begin(self) -> None:
            (table,) = (
                variable for variable in tf.compat.v1.global_variables() if "table" in variable.name
            )
            self._table, self._halve = table, table.assign(table.read_value() / 2)

        def after_run(self, run_context: Any, run_values: Any) -> None:
            tables.append(run_context.session.run(self._table))
            run_context.session.run(self._halve)

    estimator = divided_table.estimator(tmp_path, "mod", REPLICAS)
    estimator.train(divided_table.input_fn, [Halve()], max_steps=5)
    np.testing.assert_allclose(tables[0], divided_table.train_table(5), rtol=0, atol=5e-6)
    assert_table(tmp_path, divided_table.train_table(5) / 2)
