import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer import programs
from tests.trainer.backends.tpu.cluster import cluster_processes

pytestmark = [pytest.mark.slow, pytest.mark.first]


@dataclass(frozen=True)
class Run:
    """What a finished process has said.

    Attributes:
      values: the values that the program has reported, by name; the last of each name.
      errors: its standard error.
    """

    values: dict[str, Any]
    errors: str


def finish(process: "subprocess.Popen[str]", status: int = 0) -> Run:
    output, errors = process.communicate(timeout=cluster_processes.LIMIT_SECS)
    assert process.returncode == status, errors
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return Run({name: value for line in lines for name, value in line.items()}, errors)


class Cluster:
    """A chief and workers; started one by one, and ended for certain."""

    def __init__(self, size: int, *arguments: object) -> None:
        self.tasks = cluster_processes.addresses(size)
        self.arguments = arguments
        self.ending = ExitStack()

    def start(self, job: str, index: int = 0) -> "subprocess.Popen[str]":
        process = cluster_processes.start(
            *self.arguments, **cluster_processes.tf_config(self.tasks, job, index)
        )
        self.ending.callback(process.communicate)
        self.ending.callback(process.kill)
        return process

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *error: object) -> None:
        self.ending.close()


@pytest.fixture(scope="module")
def trained_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A process alone, the tasks of a cluster, and the evaluator beside the cluster.

    The chief and the first worker have TF_CONFIG, the next a TFConfigClusterResolver, as the
    evaluator has, and the last worker has a SimpleClusterResolver.
    """
    directory = tmp_path_factory.mktemp("cluster")
    with cluster_processes.start("alone", directory / "alone", cores="4x2") as alone:
        runs = {"alone": finish(alone)}
    with Cluster(4, "together", directory / "together") as cluster:
        tasks = [("chief", 0), ("worker", 0), ("worker", 1), ("worker", 2), ("evaluator", 0)]
        processes = {f"{job} {index}": cluster.start(job, index) for job, index in tasks}
        runs |= {name: finish(process) for name, process in processes.items()}
    return runs | {"directory": Run({"path": directory}, "")}


def variables(model_dir: Path, step: int) -> dict[str, Any]:
    reader = tf.train.load_checkpoint(str(model_dir / f"model.ckpt-{step}"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.numeric
def test_four_processes_train_exactly_what_one_process_trains(trained_runs: dict[str, Run]) -> None:
    directory = trained_runs["directory"].values["path"]
    alone, together = (variables(directory / name, 18) for name in ("alone", "together"))
    assert alone.keys() == together.keys()
    for name, value in alone.items():
        np.testing.assert_array_equal(value, together[name], name)
    assert trained_runs["chief 0"].values["replicas"] == 8
    assert trained_runs["chief 0"].values["metrics"] == trained_runs["alone"].values["metrics"]


@pytest.mark.numeric
def test_a_batch_is_sliced_over_the_replicas_of_all_processes(trained_runs: dict[str, Run]) -> None:
    directory = trained_runs["directory"].values["path"]
    alone, together = (variables(directory / name / "sliced", 4) for name in ("alone", "together"))
    assert alone.keys() == together.keys()
    for name, value in alone.items():
        np.testing.assert_array_equal(value, together[name], name)
    sliced = trained_runs["chief 0"].values["sliced"]
    assert len(sliced["predictions"]) == 4 * 16
    assert sliced == trained_runs["alone"].values["sliced"]


def test_workers_serve_until_the_chiefs_program_ends(trained_runs: dict[str, Run]) -> None:
    for index in range(3):
        run = trained_runs[f"worker {index}"]
        # The program does not continue after train_and_evaluate.
        assert run.values.keys() == {"generates_for"}
        assert re.search(rf"worker {index} \(.*\) serves the program of chief 0 \(", run.errors)
        assert re.search(r"the program of chief 0 \(.*\) has ended", run.errors)


@pytest.mark.numeric
def test_the_evaluator_evaluates_and_exports_the_last_checkpoint(
    trained_runs: dict[str, Run],
) -> None:
    model_dir = trained_runs["directory"].values["path"] / "together"
    metrics = trained_runs["chief 0"].values["metrics"]
    assert trained_runs["evaluator 0"].values == {"task": "evaluator"}
    scalars = programs.scalars(model_dir / "eval")
    assert scalars["mean_y"][18] == pytest.approx(metrics["mean_y"], rel=1e-6)
    assert len(list((model_dir / "export/final").iterdir())) == 1


def test_a_host_with_other_features_is_named(trained_runs: dict[str, Run]) -> None:
    error = trained_runs["chief 0"].values["other_features"]
    assert "call 4 of input_fn, on host 3," in error


def test_python_code_of_an_input_pipeline_runs_in_the_process_of_its_host(
    trained_runs: dict[str, Run],
) -> None:
    tasks = ["chief 0", "worker 0", "worker 1", "worker 2"]
    assert [trained_runs[task].values["generates_for"] for task in tasks] == [0, 1, 2, 3]
    error = trained_runs["chief 0"].values["other_python_code"]
    assert re.search(r"calls Python code on /job:worker.*Make the call with this input_fn", error)


def lines_of(process: "subprocess.Popen[str]", pattern: str) -> Iterator[str]:
    """The lines of standard error until one that has the pattern."""
    assert process.stderr is not None
    for line in process.stderr:
        yield line
        if re.search(pattern, line):
            return
    raise AssertionError(f"it ended with {process.wait()}")


def wait_for_line(process: "subprocess.Popen[str]", pattern: str) -> str:
    return list(lines_of(process, pattern))[-1]


def next_step(process: "subprocess.Popen[str]") -> int:
    """The next global step that the chief reports."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith('{"step"'):
            return int(json.loads(line)["step"])
    raise AssertionError(f"it ended with {process.wait()}: {process.communicate()[1]}")


def newest_step(model_dir: Path) -> int:
    newest = tf.train.latest_checkpoint(str(model_dir))
    return int(newest.rpartition("-")[2])


def test_lost_processes_are_named_awaited_and_resumed_from_the_newest_checkpoint(
    tmp_path: Path,
) -> None:
    with Cluster(4, "endless", tmp_path) as cluster:
        workers = [cluster.start("worker", index) for index in range(3)]
        chief = cluster.start("chief")
        assert next_step(chief) == 5
        workers[1].kill()
        wait_for_line(chief, r"worker 1 \(.*\) is lost: waiting 7200 s for its restart")
        step = newest_step(tmp_path)
        workers[1] = cluster.start("worker", 1)
        # It continues from the newest checkpoint, after the steps that were reported before.
        steps = [next_step(chief)]
        while steps[-1] <= step:
            steps.append(next_step(chief))
        assert steps[-1] == step + 5
        chief.kill()
        for worker in workers:
            wait_for_line(worker, r"chief 0 \(.*\) is lost: waiting 7200 s for its restart")
        step = newest_step(tmp_path)
        chief = cluster.start("chief")
        assert next_step(chief) == step + 5
        for process in (*workers, chief):
            process.terminate()
        for process in (chief, *workers):
            finish(process)
        assert newest_step(tmp_path) > step


def test_a_sigterm_of_one_worker_ends_all_processes_after_a_checkpoint(tmp_path: Path) -> None:
    with Cluster(2, "endless", tmp_path) as cluster:
        worker = cluster.start("worker")
        chief = cluster.start("chief")
        step = next_step(chief)
        worker.terminate()
        run = finish(chief)
        assert re.search(r"worker 0 \(.*\) got SIGTERM: training ends after this loop", run.errors)
        assert re.search(r"the program of chief 0 \(.*\) has ended", finish(worker).errors)
        assert newest_step(tmp_path) == run.values.get("step", step)


def test_an_evaluation_that_loses_a_process_names_it(tmp_path: Path) -> None:
    with Cluster(2, "endless_evaluation", tmp_path) as cluster:
        worker = cluster.start("worker")
        chief = cluster.start("chief")
        assert next_step(chief) == 0
        worker.kill()
        assert re.search(r"HostLost: worker 0 \(.*\) is lost: ", finish(chief, 1).errors)


def test_a_worker_waits_for_the_restart_of_a_chief_that_exits_with_an_error(
    tmp_path: Path,
) -> None:
    with Cluster(2, "exit_with_error", tmp_path) as cluster:
        worker = cluster.start("worker")
        finish(cluster.start("chief"), 1)
        wait_for_line(worker, r"chief 0 \(.*\) is lost: waiting 7200 s for its restart")


def lose_at_session_creation(address: str) -> None:
    """Accept connections at an address until TensorFlow connects, and then no more."""
    name, _, port = address.rpartition(":")
    with socket.create_server((name, int(port))) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                # A connection that only tests whether the address answers sends nothing.
                if connection.recv(1):
                    return


def test_a_process_lost_at_the_creation_of_the_session_is_awaited_with_a_limit(
    tmp_path: Path,
) -> None:
    with Cluster(2, "endless", tmp_path, 8) as cluster:
        (tmp_path / "ready_worker_0").touch()
        chief = cluster.start("chief")
        lose_at_session_creation(cluster.tasks[1])
        errors = finish(chief, 1).errors
        assert re.search(r"worker 0 \(.*\) is lost: waiting 8 s for its restart", errors)
        assert re.search(r"HostLost: worker 0 \(.*\) did not answer within 8 s", errors)


def test_without_a_restart_in_time_all_processes_end(tmp_path: Path) -> None:
    with Cluster(4, "endless", tmp_path, 8) as cluster:
        workers = [cluster.start("worker", index) for index in range(3)]
        chief = cluster.start("chief")
        assert next_step(chief) == 5
        workers[0].kill()
        errors = finish(chief, 1).errors
        assert re.search(r"HostLost: worker 0 \(.*\) did not answer within 8 s", errors)
        for index in (1, 2):
            *_, last = finish(workers[index], 1).errors.splitlines()
            assert re.match(
                r"Error: chief 0 \(.*\) is lost, and was not restarted within 8 s. This process, "
                rf"worker {index} \(.*\), ends\.",
                last,
            )
