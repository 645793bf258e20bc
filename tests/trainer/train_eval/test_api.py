from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting, InvalidType
from trainer.estimator.early_stopping import make_early_stopping_hook, stop_if_higher_hook
from trainer.exporting.exporters import Exporter
from trainer.train_eval import api
from trainer.train_eval.api import EvalSpec, TrainSpec, train_and_evaluate
from trainer.train_eval.checkpoint_evaluator import CheckpointEvaluator


class Recorder(Exporter):
    """Exports nothing, and records its calls."""

    def __init__(self, name: str = "recorder", result: bytes | None = None) -> None:
        self._name = name
        self._result = result
        self.calls: list[tuple[int, bool]] = []

    @property
    def name(self) -> str:
        return self._name

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> bytes | None:
        assert export_path == f"{estimator.model_dir}/export/{self._name}"
        assert checkpoint_path.endswith(f"-{eval_result['global_step']}")
        self.calls.append((eval_result["global_step"], is_the_final_export))
        return self._result


def estimator(model_dir: Path, **options: Any) -> trainer.TPUEstimator:
    """Return an estimator of the slope model that saves a checkpoint every two steps."""
    options = {"iterations_per_loop": 1, "save_checkpoints_steps": 2, **options}
    return programs.estimator(model_dir, **options)


def eval_spec(**options: Any) -> EvalSpec:
    return EvalSpec(programs.ones(), **{"steps": 1, "throttle_secs": 0, **options})


def evaluated_steps(directory: Path) -> list[int]:
    return list(programs.scalars(directory)["mean_y"])


def counted_ones(starts: list[int]) -> Any:
    def input_fn() -> Any:
        starts.append(1)
        return programs.ones()()

    return input_fn


RUNNERS = [api.evaluate_within_training, api.evaluate_between_trainings]


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNNERS)
def test_each_checkpoint_is_evaluated_once_and_the_last_is_final(run: Any, tmp_path: Path) -> None:
    recorder = Recorder(result=b"there")
    evaluator = CheckpointEvaluator(estimator(tmp_path), eval_spec(exporters=recorder), 6)
    run(estimator(tmp_path), TrainSpec(programs.ones(), max_steps=6), [evaluator])
    assert evaluated_steps(tmp_path / "eval") == [2, 4, 6]
    assert recorder.calls == [(2, False), (4, False), (6, True)]
    assert evaluator.metrics == {
        "mean_y": 1 - 2**-6,
        "loss": 2**-13,
        "global_step": 6,
    }


@pytest.mark.slow
def test_the_training_input_runs_on_while_evaluations_come_between(tmp_path: Path) -> None:
    starts: list[int] = []
    train_and_evaluate(
        estimator(tmp_path), TrainSpec(counted_ones(starts), max_steps=6), eval_spec()
    )
    assert evaluated_steps(tmp_path / "eval") == [2, 4, 6]
    assert len(starts) == 1


@pytest.mark.slow
def test_a_device_for_one_of_both_is_given_free_for_each_evaluation(tmp_path: Path) -> None:
    starts: list[int] = []
    evaluator = CheckpointEvaluator(estimator(tmp_path), eval_spec(), 6)
    api.evaluate_between_trainings(
        estimator(tmp_path), TrainSpec(counted_ones(starts), max_steps=6), [evaluator]
    )
    assert len(starts) == 3


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNNERS)
def test_a_throttled_evaluation_is_left_out_but_not_the_last(run: Any, tmp_path: Path) -> None:
    evaluator = CheckpointEvaluator(estimator(tmp_path), eval_spec(throttle_secs=600), 6)
    run(estimator(tmp_path), TrainSpec(programs.ones(), max_steps=6), [evaluator])
    assert evaluated_steps(tmp_path / "eval") == [2, 6]


@pytest.mark.parametrize("run", RUNNERS)
def test_training_that_ends_early_ends_with_one_final_export(run: Any, tmp_path: Path) -> None:
    final, latest = Recorder("final"), Recorder("latest", result=b"there")
    spec = eval_spec(exporters=[final, latest])
    chief = estimator(tmp_path)
    hook = make_early_stopping_hook(chief, lambda: True, None, run_every_steps=1)
    evaluator = CheckpointEvaluator(chief, spec, 100)
    run(chief, TrainSpec(programs.ones(), max_steps=100, hooks=[hook]), [evaluator])
    assert final.calls == latest.calls == [(1, True)]


@pytest.mark.parametrize("run", RUNNERS)
def test_hook_of_model_fn_ends_training_at_a_step_that_is_evaluated(
    run: Any, tmp_path: Path
) -> None:
    class StopOnceHook(tf.compat.v1.train.SessionRunHook):
        has_stopped = False

        def after_run(self, run_context: Any, run_values: Any) -> None:
            if not self.has_stopped and programs.variable(tmp_path, "global_step") == 2:
                self.has_stopped = True
                run_context.request_stop()

    hook = StopOnceHook()

    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        return spec._replace(training_hooks=[hook])

    chief = estimator(tmp_path, model_fn=model_fn)
    evaluator = CheckpointEvaluator(chief, eval_spec(), 8)
    run(chief, TrainSpec(programs.ones(), max_steps=8), [evaluator])
    assert evaluated_steps(tmp_path / "eval") == [2]


@pytest.mark.parametrize("run", RUNNERS)
def test_training_whose_input_ends_before_a_checkpoint_is_not_resumed(
    run: Any, tmp_path: Path
) -> None:
    evaluator = CheckpointEvaluator(estimator(tmp_path), eval_spec(), 4)
    run(estimator(tmp_path), TrainSpec(programs.ones(batches=1), max_steps=4), [evaluator])
    assert evaluated_steps(tmp_path / "eval") == [1]


def test_the_end_of_the_input_is_final(tmp_path: Path) -> None:
    exports, waits = Recorder("exports", result=b"there"), Recorder("waits")
    metrics, exported = train_and_evaluate(  # type: ignore[misc]
        estimator(tmp_path),
        TrainSpec(programs.ones(batches=4)),
        eval_spec(exporters=[exports, waits]),
    )
    # Training notices the end of the input only after the evaluation at step 4.
    assert exports.calls == [(2, False), (4, False)]
    assert waits.calls == [(2, False), (4, False), (4, True)]
    assert metrics["global_step"] == 4
    assert exported == [b"there", None]


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNNERS)
def test_what_an_evaluation_finds_stops_training_at_its_step(run: Any, tmp_path: Path) -> None:
    chief = estimator(tmp_path, iterations_per_loop=2)
    hook = stop_if_higher_hook(chief, "mean_y", 0.9, run_every_secs=None, run_every_steps=1)
    evaluator = CheckpointEvaluator(chief, eval_spec(), 100)
    run(chief, TrainSpec(programs.ones(), max_steps=100, hooks=[hook]), [evaluator])
    # The value at step 4, 1 - 2**-4, is the first above 0.9.
    assert evaluated_steps(tmp_path / "eval") == [2, 4]
    assert programs.variable(tmp_path, "global_step") == 4


@pytest.mark.slow
def test_several_evaluations_have_results_and_throttles_of_their_own(tmp_path: Path) -> None:
    specs = [eval_spec(name="often"), eval_spec(name="seldom", throttle_secs=600)]
    metrics, exported = train_and_evaluate(  # type: ignore[misc]
        estimator(tmp_path), TrainSpec(programs.ones(), max_steps=6), specs
    )
    assert {name: values["global_step"] for name, values in metrics.items()} == {
        "often": 6,
        "seldom": 6,
    }
    assert exported == {"often": [], "seldom": []}
    assert evaluated_steps(tmp_path / "eval_often") == [2, 4, 6]
    assert evaluated_steps(tmp_path / "eval_seldom") == [2, 6]


def test_a_training_that_had_ended_is_evaluated_and_exported_again(tmp_path: Path) -> None:
    chief, recorder = estimator(tmp_path), Recorder()
    chief.train(programs.ones(), max_steps=4)
    train_and_evaluate(
        chief, TrainSpec(programs.ones(), max_steps=4), eval_spec(exporters=recorder)
    )
    assert recorder.calls == [(4, True)]


def test_an_evaluation_that_fails_like_an_ended_input_is_not_taken_for_one(
    tmp_path: Path,
) -> None:
    class Fails(tf.compat.v1.train.SessionRunHook):
        def begin(self) -> None:
            raise tf.errors.OutOfRangeError(None, None, "the evaluation's own")

    with pytest.raises(tf.errors.OutOfRangeError, match="the evaluation's own"):
        train_and_evaluate(
            estimator(tmp_path),
            TrainSpec(programs.ones(), max_steps=6),
            eval_spec(hooks=[Fails()]),
        )


@pytest.mark.slow
def test_hooks_and_listeners_of_the_train_spec_are_called(tmp_path: Path) -> None:
    class Listener(tf.compat.v1.train.CheckpointSaverListener):
        steps: list[int] = []

        def after_save(self, session: Any, global_step_value: int) -> None:
            self.steps.append(int(global_step_value))

    listener = Listener()
    spec = TrainSpec(programs.ones(), max_steps=4, saving_listeners=[listener])
    train_and_evaluate(estimator(tmp_path), spec, eval_spec())
    assert listener.steps == [0, 2, 4]


def test_what_is_no_estimator_is_refused() -> None:
    with pytest.raises(InvalidType, match="estimator must have type trainer.Estimator"):
        train_and_evaluate(object(), TrainSpec(programs.ones()), eval_spec())


@pytest.mark.parametrize(
    ("train_spec", "spec", "complaint"),
    [
        ("x", eval_spec(), "train_spec is 'x'"),
        (TrainSpec(programs.ones()), "x", "eval_spec is 'x'"),
        (TrainSpec(programs.ones()), [eval_spec(), "x"], "eval_spec is 'x'"),
    ],
)
def test_specs_of_other_types_are_refused(
    train_spec: Any, spec: Any, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match=complaint):
        train_and_evaluate(estimator(tmp_path), train_spec, spec)


def test_evaluations_that_write_to_one_place_are_refused(tmp_path: Path) -> None:
    train_spec = TrainSpec(programs.ones())
    with pytest.raises(InvalidSetting, match="EvalSpecs are named 'a'"):
        train_and_evaluate(estimator(tmp_path), train_spec, [eval_spec(name="a")] * 2)
    specs = [eval_spec(name=name, exporters=Recorder()) for name in "ab"]
    with pytest.raises(InvalidSetting, match="of all EvalSpecs together, are named 'recorder'"):
        train_and_evaluate(estimator(tmp_path), train_spec, specs)
