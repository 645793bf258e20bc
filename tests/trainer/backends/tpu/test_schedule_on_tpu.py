from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tests.trainer.backends.tpu import slope

pytestmark = pytest.mark.slow


def receiver() -> trainer.ServingInputReceiver:
    x = tf.compat.v1.placeholder(tf.float32, [None, 1])
    return trainer.ServingInputReceiver({"x": x}, {"x": x})


def run_schedule(
    tmp_path: Path,
    *,
    max_steps: int | None = 6,
    batches: int | None = None,
    train_hooks: Any = (),
    **options: Any,
) -> Any:
    estimator = programs.estimator(
        tmp_path,
        use_tpu=True,
        iterations_per_loop=1,
        save_checkpoints_steps=2,
        train_batch_size=4,
        eval_batch_size=4,
        **options,
    )
    return estimator, trainer.train_and_evaluate(
        estimator,
        trainer.TrainSpec(programs.ones(batches, 4), max_steps=max_steps, hooks=train_hooks),
        trainer.EvalSpec(
            programs.ones(batch_size=4),
            steps=1,
            throttle_secs=0,
            exporters=[trainer.BestExporter(serving_input_receiver_fn=receiver)],
        ),
    )


@pytest.mark.on_pjrt_too
def test_training_evaluation_and_export_take_turns_on_a_tpu(tmp_path: Path) -> None:
    with slope.tpu():
        estimator, (metrics, _) = run_schedule(tmp_path)
    assert metrics["mean_y"] == 1 - 0.5**6
    assert metrics["global_step"] == 6
    assert sorted(programs.scalars(tmp_path / "eval")["mean_y"]) == [2, 4, 6]
    # Each of the 3 evaluations was better than the one before, so each checkpoint was exported.
    assert len(list((tmp_path / "export" / "best_exporter").iterdir())) == 3


@pytest.mark.on_pjrt_too
def test_early_stopping_ends_a_training_on_a_tpu(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, use_tpu=True, train_batch_size=4)
    stop = trainer.stop_if_higher_hook(estimator, "mean_y", threshold=0.9, run_every_secs=None,
                                       run_every_steps=1)  # fmt: skip
    with slope.tpu():
        run_schedule(tmp_path, max_steps=100, train_hooks=[stop])
    assert programs.variable(tmp_path, "global_step") < 20


@pytest.mark.on_pjrt_too
def test_a_training_without_max_steps_ends_with_its_input_and_is_evaluated_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The hook ends a training whose input starts again and again.
    endless = tf.compat.v1.train.StopAtStepHook(last_step=20)
    with slope.tpu():
        _, (metrics, _) = run_schedule(tmp_path, max_steps=None, batches=6, train_hooks=[endless])
    assert metrics["global_step"] == 6
    assert list(programs.scalars(tmp_path / "eval")["mean_y"]) == [6]
    assert "Set TrainSpec.max_steps to evaluate during training" in caplog.text
