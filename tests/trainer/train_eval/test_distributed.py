import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests import processes
from tests.preloaded.process import PreloadedProcess
from tests.trainer import programs
from tpuserve.errors import Code, CodedError, InvalidSetting
from trainer.config.tf_config import ClusterTask
from trainer.estimator.early_stopping import FollowChiefHook, make_early_stopping_hook
from trainer.estimator.in_memory_evaluator import InMemoryEvaluatorHook
from trainer.hooks.checkpoint_hooks import StopAtCheckpointHook, make_stop_at_checkpoint_step_hook
from trainer.train_eval import distributed
from trainer.train_eval.api import EvalSpec, TrainSpec, train_and_evaluate
from trainer.train_eval.checkpoint_evaluator import CheckpointEvaluator


def estimator(model_dir: Path) -> trainer.TPUEstimator:
    return programs.estimator(model_dir, iterations_per_loop=1, save_checkpoints_steps=2)


def evaluated_steps(model_dir: Path) -> list[int]:
    return list(programs.scalars(model_dir / "eval")["mean_y"])


def evaluator_of(model_dir: Path, max_steps: int | None, **options: Any) -> CheckpointEvaluator:
    spec = EvalSpec(programs.ones(), steps=1, throttle_secs=0)
    return CheckpointEvaluator(estimator(model_dir), spec, max_steps, **options)


@pytest.mark.slow
def test_an_evaluator_follows_training_to_its_end(tmp_path: Path) -> None:
    goals = iter([2, 4, 4, 6])

    def train_a_little(seconds: float) -> None:
        estimator(tmp_path).train(programs.ones(), max_steps=next(goals))

    distributed.evaluate_continuously(
        [evaluator_of(tmp_path, 6)], str(tmp_path), 6, sleep=train_a_little
    )
    assert evaluated_steps(tmp_path) == [2, 4, 6]


def test_an_evaluator_ends_where_the_chief_has_ended(tmp_path: Path) -> None:
    estimator(tmp_path).train(programs.ones(), max_steps=4)

    def end(seconds: float) -> None:
        distributed.write_marker(str(tmp_path), 4, None)

    distributed.evaluate_continuously(
        [evaluator_of(tmp_path, None)], str(tmp_path), None, sleep=end
    )
    assert evaluated_steps(tmp_path) == [4]


def test_an_evaluator_waits_for_its_start(tmp_path: Path) -> None:
    estimator(tmp_path).train(programs.ones(), max_steps=2)
    now, waits = [0.0], []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += 50

    evaluator = evaluator_of(tmp_path, 2, start_delay_secs=120, clock=lambda: now[0])
    distributed.evaluate_continuously([evaluator], str(tmp_path), 2, sleep=sleep)
    assert len(waits) == 3


_EVALUATOR = """
import sys
from pathlib import Path
import trainer
from tests.trainer import programs
from trainer.train_eval.api import EvalSpec, TrainSpec, train_and_evaluate

estimator = programs.estimator(Path(sys.argv[1]))
spec = EvalSpec(programs.ones(), steps=1, start_delay_secs=0, throttle_secs=0)
train_and_evaluate(estimator, TrainSpec(programs.ones(), max_steps=100), spec)
"""


def tf_config(task_type: str, index: int = 0, **jobs: list[str]) -> str:
    cluster = {"chief": ["host:1"], **jobs}
    return json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}})


@pytest.mark.slow
def test_a_process_evaluates_what_another_trains_until_it_stops_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", tf_config("evaluator"))
    evaluator = PreloadedProcess(
        [sys.executable, "-c", _EVALUATOR, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        monkeypatch.setenv("TF_CONFIG", tf_config("chief"))
        chief = estimator(tmp_path)
        calls = iter([False, False, True])
        hook = make_early_stopping_hook(chief, lambda: next(calls), None, run_every_steps=1)
        spec = EvalSpec(programs.ones(), steps=1)
        train_spec = TrainSpec(programs.ones(), max_steps=100, hooks=[hook])
        assert train_and_evaluate(chief, train_spec, spec) is None
        assert evaluator.wait(timeout=900) == 0
    finally:
        evaluator.kill()
        _, log = evaluator.communicate()
    assert evaluated_steps(tmp_path)[-1] == 3, log


def test_a_worker_follows_the_chief(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", tf_config("worker", worker=["host:2"]))
    worker = estimator(tmp_path)
    stopping = make_early_stopping_hook(worker, lambda: True)
    assert isinstance(stopping, FollowChiefHook)
    assert isinstance(make_stop_at_checkpoint_step_hook(worker, 4), StopAtCheckpointHook)


def test_what_needs_a_single_machine_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", tf_config("chief", ps=["host:2"]))
    with pytest.raises(InvalidSetting, match="supports only a single machine; .*ps_replicas=1"):
        InMemoryEvaluatorHook(estimator(tmp_path), programs.ones())


@pytest.mark.parametrize(
    ("task", "complaint"),
    [
        (tf_config("evaluator", 1), "only one evaluator task, with index 0; this one has index 1"),
        (tf_config("observer", observer=["host:2"]), "the task type of the config is 'observer'"),
    ],
)
def test_a_process_without_a_part_is_refused(
    task: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", task)
    with pytest.raises(ValueError, match=complaint):
        train_and_evaluate(
            estimator(tmp_path), TrainSpec(programs.ones()), EvalSpec(programs.ones())
        )


def test_a_master_evaluates_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"cluster": {"master": ["host:1"]}, "task": {"type": "master", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    spec = EvalSpec(programs.ones(), steps=1, throttle_secs=0)
    train_spec = TrainSpec(programs.ones(), max_steps=4)
    metrics, _ = train_and_evaluate(estimator(tmp_path), train_spec, spec)  # type: ignore[misc]
    assert metrics["global_step"] == 4
    assert evaluated_steps(tmp_path) == [2, 4]


@pytest.mark.parametrize(
    ("task_id", "most", "delay"),
    [(0, None, 5), (2, None, 15), (20, None, 60), (2, 7, 7), (2, 0, 0)],
)
def test_workers_start_one_after_the_other(task_id: int, most: int | None, delay: int) -> None:
    config = SimpleNamespace(task_id=task_id, experimental_max_worker_delay_secs=most)
    assert distributed.worker_delay_secs(config) == delay


def config(cluster: dict[str, list[str]], **changes: Any) -> Any:
    settings = {"task_type": "chief", "task_id": 0, "master": "", "protocol": None}
    return SimpleNamespace(
        cluster_spec=tf.train.ClusterSpec(cluster) if cluster else None,
        cluster=None,
        session_config=None,
        task=ClusterTask(jobs={job: dict(enumerate(tasks)) for job, tasks in cluster.items()}),
        **{**settings, **changes},
    )


def test_a_cluster_of_one_needs_no_server() -> None:
    with distributed.running_server(config({"chief": ["host:1"]})) as server:
        assert server is None


def test_a_process_of_a_cluster_serves() -> None:
    first, second = (f"{processes.LOOPBACK}:{port}" for port in processes.free_ports(2))
    master = f"grpc://{first}"
    with distributed.running_server(
        config({"chief": [first], "worker": [second]}, master=master)
    ) as server:
        assert server.target == master


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (config({}), "cannot start a server: the config has cluster_spec=None"),
        (config({"chief": ["host:1"]}, task_id=None), "task_id=None"),
        (config({"chief": ["host:1"], "ps": ["host:2"]}), "has no master"),
    ],
)
def test_a_config_that_does_not_say_who_serves_is_refused(config: Any, complaint: str) -> None:
    with (
        pytest.raises(InvalidSetting, match=complaint),
        distributed.running_server(config),
    ):
        raise AssertionError("it serves")


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("", 0)) as listener:
        address = f"{processes.LOOPBACK}:{listener.getsockname()[1]}"
        used = config({"chief": [address], "worker": ["host:1"]}, master=f"grpc://{address}")
        text = rf"chief 0 cannot listen at {address}: "
        with (
            pytest.raises(
                CodedError, match=text, check=lambda error: error.code is Code.UNAVAILABLE
            ),
            distributed.running_server(used),
        ):
            raise AssertionError("it serves")
