from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.trainer.hosts import host_processes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model")


@pytest.fixture(scope="module")
def results(model_dir: Path) -> list[dict[str, Any]]:
    """Run the program on two hosts by `tpuserve run`; return the values that each reports."""
    pytest.importorskip("jax")
    program = ["-m", "tests.trainer.hosts.program", "schedule", str(model_dir)]
    finished = processes.run_tpuserve("run", "--processes", "2", "--cores", "1", *program)
    assert finished.returncode == 0, finished.stderr
    marked = (line[4:] for line in finished.stderr.splitlines() if line.startswith("[1] "))
    return [
        host_processes.read_report(finished.stdout),
        host_processes.read_report("\n".join(marked)),
    ]


def test_hosts_train_evaluate_and_export_together(
    model_dir: Path, results: list[dict[str, Any]]
) -> None:
    first, second = results
    shared = ("metrics", "exported", "step", "uneven", "error")
    assert [first[name] for name in shared] == [second[name] for name in shared]
    # The evaluation has two global batches of 16 rows.
    assert first["metrics"]["rows"] == 32
    assert first["metrics"]["global_step"] == 10
    # Host 0 alone has exported, and has written all summaries.
    (exported,) = first["exported"]
    exports = model_dir / "schedule" / "export" / "final"
    assert [str(path) for path in exports.iterdir()] == [exported]
    assert len(list((model_dir / "schedule" / "eval").iterdir())) == 1
    assert len(list((model_dir / "schedule").glob("events.*"))) == 1


def test_all_hosts_stop_where_the_shortest_input_ends(results: list[dict[str, Any]]) -> None:
    # Host 0 has 7 batches, and host 1 has 11: training stops after 7 steps.
    assert [result["step"] for result in results] == [7, 7]
    # An evaluation uses the rows of all hosts: 2 batches of 8 rows on host 0, and 3 on host 1.
    assert [result["uneven"]["rows"] for result in results] == [40, 40]


def test_other_features_on_a_host_are_named(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert "other tensors on host 1 (127.0.0.1) than on host 0" in result["error"]
        actual, expected = (f"features['{name}'] (float32[8, 2])" for name in "cb")
        assert f"{actual} in place of {expected}" in result["error"]


def test_host_0_alone_calls_a_host_call_with_the_tensors_of_all_hosts(
    results: list[dict[str, Any]],
) -> None:
    assert [result.get("replicas") for result in results] == [2, None]
