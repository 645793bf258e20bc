from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.pjrt_devices import pjrt_devices
from tests.trainer.embedding import sums
from tests.trainer.hosts import host_processes, program

pytestmark = [pytest.mark.slow, pytest.mark.first]


def weights(model_dir: Path) -> dict[str, Any]:
    reader = tf.train.load_checkpoint(str(model_dir))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Any]:
    """Train in one process with eight devices; return its weights and its evaluation."""
    pytest.importorskip("jax")
    model_dir = tmp_path_factory.mktemp("alone")
    with pjrt_devices(program.REPLICAS):
        evaluation = program.train_model(model_dir).evaluate(program.make_input(3))
    return weights(model_dir), evaluation


@pytest.mark.numeric
def test_several_hosts_compute_what_one_process_computes(alone: Any, tmp_path: Path) -> None:
    naming = host_processes.by_tf_config
    with host_processes.hosts(4, 2, "together", tmp_path, naming=naming) as processes:
        results = [host_processes.results(process) for process in processes]
    expected, evaluation = alone
    actual = weights(tmp_path)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        # Each of 10 steps adds eight gradients of about 1 in another order, which changes their sum
        # by about 1e-7. With the rate 0.05 and the momentum 0.9 the changes add up to less than
        # 2e-6.
        np.testing.assert_allclose(actual[name], value, atol=2e-6, err_msg=name)
    assert [result["same"] for result in results] == [results[0]["same"]] * 4
    assert results[0]["same"] == pytest.approx(evaluation, rel=1e-5)
    assert results[0]["same"]["rows"] == 3 * program.REPLICAS * program.ROWS


def test_workers_train_the_replicas_of_a_multi_worker_strategy(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    naming = host_processes.by_workers
    with host_processes.hosts(2, 2, "strategy", tmp_path, naming=naming) as processes:
        results = [host_processes.results(process) for process in processes]
    # The mean of the gradients is 2 (w - 2): w becomes 1 and then 1.5.
    metrics = {"loss": ((1.5 - 1) ** 2 + (1.5 - 3) ** 2) / 2, "global_step": 2}
    for worker, result in enumerate(results):
        assert result == {"calls": [[2, worker, 2]], "metrics": metrics, "w": 1.5}


@pytest.mark.numeric
def test_several_hosts_train_a_table_of_which_each_device_has_some_rows(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    naming = host_processes.by_kubernetes
    with host_processes.hosts(2, 4, "table", tmp_path / "hosts", naming=naming) as processes:
        results = [host_processes.results(process) for process in processes]
    cpu = program.make_table_estimator(tmp_path / "cpu", use_tpu=False)
    input_fn = sums.batches(*map(program.table_ids, range(6)))
    cpu.train(input_fn, max_steps=8)
    expected, actual = weights(tmp_path / "cpu"), weights(tmp_path / "hosts")
    assert actual.keys() == expected.keys() == {"global_step", "words", "words/Adagrad"}
    for name, value in expected.items():
        # Each of 8 steps changes a number below 2 by less than 1, and rounds sums of some 10.
        np.testing.assert_allclose(actual[name], value, atol=1e-5, err_msg=name)
    loss = cpu.evaluate(input_fn, steps=3)["loss"]
    assert [result["loss"] for result in results] == [pytest.approx(loss, rel=1e-4)] * 2
    assert "error" not in results[0]
    assert results[1]["error"].startswith(
        "host 1 uses the variable 'words', whose rows are divided"
    )
