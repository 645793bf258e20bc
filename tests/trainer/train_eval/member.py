"""A task of the cluster in TF_CONFIG, which trains or evaluates the slope model.

Arguments: MODEL_DIR MAX_STEPS. Chief and workers train until MAX_STEPS, and then again until a file
`stop` exists in MODEL_DIR. Each task prints what it does, in lines of a word or two.
"""

import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

import trainer
from tests.trainer import programs


class MeetingHook(tf.compat.v1.train.SessionRunHook):
    """Prints "trains" after the first loop; the chief first waits for the worker's first loop."""

    def __init__(self, part: str, is_chief: bool, model_dir: Path) -> None:
        self._part, self._is_chief = part, is_chief
        self._worker_trains = model_dir / f"worker_trains_{part}"
        self._has_met = False

    def begin(self) -> None:
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._has_met:
            return
        self._has_met = True
        if not self._is_chief:
            self._worker_trains.touch()
        wait_for(self._worker_trains)
        print("trains", self._part, flush=True)

    def end(self, session: Any) -> None:
        places = {variable.device for variable in tf.compat.v1.global_variables()}
        print("variables on", *places, flush=True)
        print("at", session.run(self._global_step), flush=True)


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


def main(model_dir: Path, max_steps: int) -> None:
    config = trainer.RunConfig(
        trainer.TPUConfig(iterations_per_loop=5),
        model_dir=str(model_dir),
        save_checkpoints_steps=20,
        experimental_max_worker_delay_secs=0,
    )
    estimator = trainer.TPUEstimator(
        programs.slope_model_fn, config=config, params={"rate": 0.5}, use_tpu=False
    )

    def run(part: str, max_steps: int, *hooks: Any) -> None:
        spec = trainer.TrainSpec(
            programs.ones(),
            max_steps=max_steps,
            hooks=[*hooks, MeetingHook(part, config.is_chief, model_dir)],
        )
        eval_spec = trainer.EvalSpec(programs.ones(), 1, start_delay_secs=0, throttle_secs=0)
        trainer.train_and_evaluate(estimator, spec, eval_spec)
        print("done", part, flush=True)

    run("to_max_steps", max_steps)
    chief_is_done = model_dir / "chief_is_done"
    if config.is_chief:
        chief_is_done.touch()
    if config.task_type != "evaluator":
        # Wait until the chief has ended the first training: otherwise the worker would count more
        # steps in it.
        wait_for(chief_is_done)
        stop = trainer.make_early_stopping_hook(
            estimator, (model_dir / "stop").exists, None, run_every_steps=1
        )
        run("until_stopped", 10**9, stop)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
