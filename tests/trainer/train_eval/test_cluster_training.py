import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import tensorflow as tf

from tests import processes
from tests.preloaded.process import PreloadedProcess
from tests.trainer import programs
from tpuserve.errors import InvalidSetting
from trainer.backends import monitored_session as sessions
from trainer.backends.local import LocalBackend, create_local_backend


@contextmanager
def cluster(log: IO[str], *arguments: object) -> Iterator[dict[str, Any]]:
    """Start the processes of a cluster; yield job → process; kill all at the end of the context."""
    jobs = ("ps", "chief", "worker")
    ports = processes.free_ports(len(jobs))
    addresses = {
        job: [f"{processes.LOOPBACK}:{port}"] for job, port in zip(jobs, ports, strict=True)
    }
    with contextlib.ExitStack() as ending:
        members = {}
        for job in (*jobs, "evaluator"):
            described = {"cluster": addresses, "task": {"type": job, "index": 0}}
            command = [
                sys.executable,
                "-m",
                "tests.trainer.train_eval.member",
                *map(str, arguments),
            ]
            members[job] = PreloadedProcess(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=Path(__file__).parents[3],
                env={**os.environ, "TF_CONFIG": json.dumps(described)},
            )
            ending.callback(members[job].communicate)
            ending.callback(members[job].kill)
        yield members


def until(member: Any, line: str) -> list[str]:
    """Return the lines that a process prints, up to and including a given line."""
    lines = []
    for text in member.stdout:
        lines.append(text.strip())
        if lines[-1] == line:
            return lines
    raise AssertionError(f"it has ended with {member.wait()}, and printed {lines}")


@pytest.mark.slow
def test_chief_and_worker_train_one_model_on_a_ps_while_an_evaluator_looks_on(
    tmp_path: Path,
) -> None:
    model_dir = tmp_path / "model"
    model_dir.mkdir()
    with (tmp_path / "log").open("w+") as log, cluster(log, model_dir, 60) as members:
        trainers = [members["chief"], members["worker"]]
        for process in trainers:
            lines = until(process, "done to_max_steps")
            assert lines[:2] == ["trains to_max_steps", "variables on /job:ps/task:0"]
            if process is members["chief"]:
                # A process may begin a loop before it sees the last step of the other process.
                assert 60 <= int(lines[2].removeprefix("at ")) <= 65
        assert until(members["evaluator"], "done to_max_steps") == ["done to_max_steps"]
        for process in trainers:
            until(process, "trains until_stopped")
        (model_dir / "stop").touch()
        for process in trainers:
            until(process, "done until_stopped")
            assert process.wait(60) == 0
        assert members["evaluator"].wait(60) == 0
        members["ps"].terminate()
        assert members["ps"].wait(60) == -signal.SIGTERM
        log.seek(0)
        assert "one step in each session.run" not in log.read()
    assert max(programs.scalars(model_dir / "eval")["mean_y"]) >= 60
    assert programs.variable(model_dir, "w") == 1.0
    assert programs.variable(model_dir, "global_step") > 61
    # Only the chief writes event files to model_dir.
    assert len(list(model_dir.glob("events.out.tfevents.*"))) == 1


def describe(monkeypatch: pytest.MonkeyPatch, task_type: str, **jobs: list[str]) -> None:
    described = {"cluster": jobs, "task": {"type": task_type, "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(described))


@pytest.mark.parametrize(
    ("task_type", "seen"),
    [
        ("chief", ["/job:ps", "/job:chief"]),
        ("worker", ["/job:ps", "/job:worker/task:0"]),
        ("ps", ["/job:ps", "/job:worker", "/job:chief", "/job:master"]),
        ("evaluator", []),
    ],
)
def test_a_task_sees_those_alone_that_it_works_with(
    task_type: str, seen: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(monkeypatch, task_type, chief=["a:1"], worker=["b:1"], ps=["c:1"])
    config = programs.estimator(tmp_path).config
    assert list(sessions.config_proto(config).device_filters) == seen


def test_workers_that_share_no_variables_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(monkeypatch, "worker", chief=["a:1"], worker=["b:1"])
    with pytest.raises(InvalidSetting, match="worker 0 cannot train: .* no job 'ps'"):
        programs.estimator(tmp_path).train(programs.ones(), max_steps=1)


def test_what_reads_a_checkpoint_leaves_the_parameter_servers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(monkeypatch, "chief", chief=["a:1"], ps=["c:1"])
    estimator = programs.estimator(tmp_path)
    assert create_local_backend(estimator._program, "train").master == "grpc://a:1"
    assert [
        create_local_backend(estimator._program, mode).master for mode in ("eval", "infer")
    ] == ["", ""]


def test_a_worker_waits_for_its_chief_no_longer_than_it_may(tmp_path: Path) -> None:
    config = programs.estimator(tmp_path).config.replace(session_creation_timeout_secs=1)
    with tf.Graph().as_default():
        tf.compat.v1.get_variable("w", [])
        scaffold = tf.compat.v1.train.Scaffold()
        with pytest.raises(tf.errors.DeadlineExceededError, match="not ready"):
            LocalBackend().create_session(config, scaffold, [], is_chief=False)
