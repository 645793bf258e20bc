"""Embedding tables train on PJRT devices as they do on the CPU and on an emulated TPU."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.backends.tpu import slope
from tests.trainer.embedding import sums
from tests.trainer.embedding.device_shapes import record_shapes
from tests.trainer.embedding.test_training import OPTIMIZERS
from tpuserve.graph.row_sharding import RowSharding
from tpuserve.pjrt import step_program
from tpuserve.pjrt.executable_cache import ExecutableCache
from trainer.embedding.optimization_parameters import StochasticGradientDescentParameters

pytest.importorskip("jax")

pytestmark = [pytest.mark.slow, pytest.mark.first]

CORES = 4
# The rows of these batches have up to 2, 3 and 5 ids. On the devices, the batches of a loop are
# padded to 2, 4 or 8 ids.
BATCHES = (
    [[0, 5], [5, -1], [-1, -1], [6, 6]],
    sums.IDS,
    [[0, 1, 2, 3, 4], [5, -1, -1, -1, -1], [5, 6, -1, -1, -1], [5, 5, 5, 5, 5]],
)


@pytest.fixture(autouse=True)
def shapes_on_devices(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return record_shapes(monkeypatch)


def assert_same(first: Path, second: Path) -> None:
    """Assert that two trainings have the same variables.

    Each of up to 8 steps changes an entry by less than 1, and rounds some ten sums by 6e-8 each.
    """
    expected = sums.variables(first)
    actual = sums.variables(second)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("names", "strategy", "iterations_per_loop"),
    [
        # The first loop has 4 ids in a row, and the second has 8: each needs an executable.
        (("adagrad", "one_by_one"), "div", 2),
        (("adam_of_all_rows", "ftrl"), "mod", 3),
    ],
)
@pytest.mark.numeric
def test_pjrt_devices_train_the_variables_of_emulated_cores(
    names: tuple[str, ...],
    strategy: str,
    iterations_per_loop: int,
    tmp_path: Path,
    shapes_on_devices: dict[str, Any],
) -> None:
    tables = {name: {"optimization_parameters": OPTIMIZERS[name]} for name in names}
    for kind in ("emulated", "pjrt"):
        model = sums.estimator(
            tmp_path / kind,
            sums.spec_of_tables(tables, strategy),
            model=sums.model_fn_of_tables,
            iterations_per_loop=iterations_per_loop,
        )
        with slope.tpu(CORES, kind=kind):
            model.train(sums.batches(*BATCHES, features=names), steps=3)
    assert_same(tmp_path / "emulated", tmp_path / "pjrt")
    rows = RowSharding(strategy, sums.ROWS, CORES).rows_per_replica
    divided = sums.variables(tmp_path / "pjrt").keys() - {"global_step"}
    assert shapes_on_devices == {name: [(rows, sums.DIMENSION)] * CORES for name in divided}


@pytest.mark.numeric
def test_checkpoints_go_round_from_cpu_to_pjrt_to_emulated_tpu_to_cpu(tmp_path: Path) -> None:
    spec, ids = sums.spec(OPTIMIZERS["adam"]), sums.batches(sums.IDS)
    sums.estimator(tmp_path / "cpu", spec, use_tpu=False).train(ids, max_steps=8)
    for kind, max_steps in (("cpu", 2), ("pjrt", 4), ("emulated", 6), ("cpu", 8)):
        with nullcontext() if kind == "cpu" else slope.tpu(CORES, kind=kind):
            model = sums.estimator(tmp_path / "ring", spec, use_tpu=kind != "cpu")
            model.train(ids, max_steps=max_steps)
    assert_same(tmp_path / "cpu", tmp_path / "ring")


@pytest.mark.numeric
def test_evaluation_and_prediction_divide_the_table_and_need_nothing_of_a_train_op(
    tmp_path: Path, shapes_on_devices: dict[str, Any]
) -> None:
    spec, ids = sums.spec(OPTIMIZERS["adagrad"]), sums.batches(sums.IDS)
    # The train_op is that of Adam, so a slot of the table for it is not in the checkpoint.
    model_fn = sums.model_fn_with_train_op
    cpu = sums.estimator(tmp_path, spec, use_tpu=False, model=model_fn)
    cpu.train(ids, steps=2)
    expected = cpu.evaluate(ids, steps=1)["loss"]
    first = next(iter(cpu.predict(ids)))
    with slope.tpu(CORES, kind="pjrt"):
        model = sums.estimator(tmp_path, spec, model=model_fn)
        assert model.evaluate(ids, steps=1)["loss"] == pytest.approx(expected, rel=1e-5)
        assert shapes_on_devices["words"] == [(2, 2)] * CORES
        shapes_on_devices.clear()
        prediction = next(iter(model.predict(ids)))
        assert shapes_on_devices["words"] == [(2, 2)] * CORES
    np.testing.assert_allclose(prediction["y"], first["y"], rtol=1e-5)


def test_no_device_ever_has_memory_for_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(
        ExecutableCache, "store", lambda self, key, executable: compiled.append(executable)
    )
    rows, dimension = 40_000, 16
    parameters = OPTIMIZERS["adam"]
    spec = sums.spec(parameters, initializer=None, rows=rows, dimension=dimension)
    ids = sums.batches(sums.IDS)
    with slope.tpu(CORES, kind="pjrt"):
        model = sums.estimator(tmp_path, spec)
        model.train(ids, steps=2)
        model.evaluate(ids, steps=1)
        next(iter(model.predict(ids)))
    part = rows * dimension * 4 // CORES
    # The executable for training has the table and two slots; those for evaluation and prediction
    # have only the table.
    for executable, variables in zip(compiled, (3, 1, 1), strict=True):
        memory, text = executable.memory_analysis(), executable.as_text()
        assert variables * part <= memory.argument_size_in_bytes < (variables + 0.1) * part
        assert memory.alias_size_in_bytes >= variables * part
        assert memory.temp_size_in_bytes < 0.1 * part
        assert "all-gather" not in text
        assert f"[{rows}," not in text


def train_pipelined(model_dir: Path, kind: str) -> None:
    """Train two loops, with gradients of larger and of smaller batches that wait for a step."""
    spec = sums.spec(OPTIMIZERS["adam"], pipelined=True)
    with slope.tpu(CORES, kind=kind):
        model = sums.estimator(model_dir, spec, iterations_per_loop=4)
        model.train(sums.batches(BATCHES[0], BATCHES[2]), steps=7)


@pytest.fixture(scope="module")
def pipelined_on_emulated_tpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model_dir = tmp_path_factory.mktemp("emulated")
    train_pipelined(model_dir, "emulated")
    return model_dir


# With 1 step in a dispatch, the gradients wait on the devices from one dispatch to the next.
@pytest.mark.parametrize("max_steps", [1, 64])
@pytest.mark.numeric
def test_pipelined_training_equals_that_of_the_emulated_tpu(
    max_steps: int,
    pipelined_on_emulated_tpu: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_program, "_MAX_STEPS", max_steps)
    train_pipelined(tmp_path, "pjrt")
    assert_same(pipelined_on_emulated_tpu, tmp_path)


@pytest.mark.numeric
def test_pipelined_lookups_come_before_the_update_of_the_step_before(tmp_path: Path) -> None:
    # The numbers are those of the test of the same name in test_training.
    spec = sums.spec(
        StochasticGradientDescentParameters(0.25),
        initializer=sums.v1.zeros_initializer(),
        pipelined=True,
    )
    with slope.tpu(2, kind="pjrt"):
        model = sums.estimator(
            tmp_path,
            spec,
            batch_size=2,
            iterations_per_loop=3,
            run_config={"save_checkpoints_steps": 3},
        )
        model.train(sums.batches([[0], [0]]), steps=4)
    row_sums = [sums.variables(tmp_path, step)["words"][0].sum() for step in (3, 4)]
    np.testing.assert_allclose(row_sums, [1.25, 1.25 - 0.5 * 0.25], rtol=1e-6)
