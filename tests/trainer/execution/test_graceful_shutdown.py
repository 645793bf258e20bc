import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.preloaded.process import PreloadedProcess, run_preloaded
from tests.trainer import programs
from trainer.execution import graceful_shutdown


def start_training(model_dir: Path, max_steps: int, *loops: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.trainer.execution.endless", str(model_dir)]
    command += map(str, (max_steps, *loops))
    return PreloadedProcess(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def after_loops(process: "subprocess.Popen[str]", loops: int, number: signal.Signals) -> str:
    """Send a signal after some loops; return all later output when the process has ended."""
    assert process.stdout is not None
    for _ in range(loops):
        assert process.stdout.readline() == "loop\n"
    process.send_signal(number)
    output, _ = process.communicate(timeout=120)
    return output


@pytest.mark.slow
def test_sigterm_saves_a_checkpoint_and_exits_with_0(tmp_path: Path) -> None:
    process = start_training(tmp_path, 10**9)
    output = after_loops(process, 3, signal.SIGTERM)
    assert process.returncode == 0
    assert "after train" not in output
    loops = 3 + output.count("loop")
    assert programs.variable(tmp_path, "global_step") == 4 * loops


@pytest.mark.slow
def test_after_sigkill_the_same_command_continues_to_the_same_step(tmp_path: Path) -> None:
    # The process is killed in a loop after the 10th, or while it waits after the 40th.
    process = start_training(tmp_path, 200, 40)
    after_loops(process, 10, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    killed_at = int(programs.variable(tmp_path, "global_step"))
    assert 0 < killed_at < 200
    again = start_training(tmp_path, 200)
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0
    assert output.count("loop") == (200 - killed_at) // 4
    assert programs.variable(tmp_path, "global_step") == 200


def test_a_half_written_checkpoint_is_never_loaded(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path).train(programs.ones(), max_steps=2)
    for ending in ("index", "data-00000-of-00001"):
        whole = tmp_path / f"model.ckpt-2.{ending}"
        shutil.copy(whole, tmp_path / f"model.ckpt-9.{ending}")
        os.truncate(tmp_path / f"model.ckpt-9.{ending}", whole.stat().st_size // 2)
    assert estimator.latest_checkpoint() == f"{tmp_path}/model.ckpt-2"
    estimator.train(programs.ones(), max_steps=3)
    assert estimator.get_variable_value("w") == 1 - 0.5**3


def test_the_handler_is_there_only_while_training_and_not_over_a_users_own() -> None:
    def own(number: int, frame: object) -> None: ...

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with graceful_shutdown.sigterm_watcher():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGTERM, own)
    try:
        with graceful_shutdown.sigterm_watcher():
            assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_second_sigterm_ends_at_once() -> None:
    program = (
        "import os, signal\n"
        "from trainer.execution import graceful_shutdown\n"
        "with graceful_shutdown.sigterm_watcher() as ending:\n"
        "    ending.after_create_session(None, None)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('still there', flush=True)\n"
    )
    result = run_preloaded(["-c", program])
    assert result.returncode == -signal.SIGTERM
    assert "still there" not in result.stdout


def test_sigterm_ends_the_process_with_code_0() -> None:
    events = []

    def train() -> None:
        with graceful_shutdown.sigterm_watcher() as ending:
            ending.after_create_session(None, None)
            os.kill(os.getpid(), signal.SIGTERM)
            events.append("the loop ends")

    with pytest.raises(SystemExit) as ended:
        train()
    assert ended.value.code == 0
    assert events == ["the loop ends"]
    assert tf.executing_eagerly()


def test_sigterm_without_a_training_ends_the_process_at_once() -> None:
    def train_and_wait() -> None:
        with graceful_shutdown.sigterm_watcher():
            with graceful_shutdown.sigterm_watcher() as ending:
                ending.after_create_session(None, None)
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("it goes on")

    with pytest.raises(SystemExit) as ended:
        train_and_wait()
    assert ended.value.code == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.slow
def test_sigterm_during_an_evaluation_abandons_it_and_saves(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, save_checkpoints_steps=4)
    batches = []

    class TerminateAtThird(tf.compat.v1.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            batches.append(run_values)
            if len(batches) == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        trainer.train_and_evaluate(
            estimator,
            trainer.TrainSpec(programs.ones(), max_steps=10**9),
            trainer.EvalSpec(programs.ones(), None, hooks=[TerminateAtThird()], throttle_secs=0),
        )
    assert ended.value.code == 0
    assert len(batches) == 3
    # The abandoned evaluation was at step 4.
    assert programs.variable(tmp_path, "global_step") == 4
    assert not (tmp_path / "eval").exists()


def test_sigterm_during_an_evaluation_in_a_hook_saves_the_training(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, iterations_per_loop=1)

    def input_fn() -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return programs.ones()()

    class EvaluateAtThird(tf.compat.v1.train.SessionRunHook):
        runs = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.runs += 1
            if self.runs == 3:
                estimator.evaluate(input_fn, steps=1)

    with pytest.raises(SystemExit) as ended:
        estimator.train(programs.ones(), hooks=[EvaluateAtThird()], max_steps=10)
    assert ended.value.code == 0
    assert programs.variable(tmp_path, "global_step") == 3
