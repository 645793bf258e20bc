import functools
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from trainer.exporting.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
from trainer.train_eval.api import EvalSpec, TrainSpec, train_and_evaluate


def receiver_fn() -> Any:
    x = tf.compat.v1.placeholder(tf.float32, [None, 1])
    return trainer.ServingInputReceiver({"x": x}, {"x": x})


@pytest.fixture
def trained_estimator(tmp_path: Path) -> trainer.TPUEstimator:
    return programs.write_trained(tmp_path, steps=1)


def call(
    exporter: Exporter, estimator: Any, *, loss: float = 1.0, is_final: bool = False
) -> bytes | None:
    path = f"{estimator.model_dir}/export/{exporter.name}"
    result = {"loss": loss, "global_step": 1}
    return exporter.export(estimator, path, estimator.latest_checkpoint(), result, is_final)


def test_the_final_exporter_exports_when_training_is_over(
    trained_estimator: trainer.TPUEstimator,
) -> None:
    exporter = FinalExporter("final", receiver_fn)
    assert call(exporter, trained_estimator) is None
    directory = call(exporter, trained_estimator, is_final=True)
    assert directory is not None
    assert Path(directory.decode()).parent == Path(trained_estimator.model_dir) / "export/final"
    assert (Path(directory.decode()) / "saved_model.pb").exists()


def test_the_latest_exporter_keeps_the_newest(trained_estimator: trainer.TPUEstimator) -> None:
    exporter = LatestExporter("latest", receiver_fn, exports_to_keep=2)
    exported = [call(exporter, trained_estimator) for _ in range(3)]
    remaining = sorted((Path(trained_estimator.model_dir) / "export/latest").iterdir())
    assert [str(path).encode() for path in remaining] == exported[1:]


def test_the_best_exporter_exports_the_first_model_and_each_better_one(
    trained_estimator: trainer.TPUEstimator,
) -> None:
    exporter = BestExporter(serving_input_receiver_fn=receiver_fn)
    assert exporter.name == "best_exporter"
    did_export = [
        bool(call(exporter, trained_estimator, loss=loss)) for loss in (3.0, 4.0, 2.0, 2.0, 1.0)
    ]
    assert did_export == [True, False, True, False, True]


def test_the_best_result_of_an_earlier_run_stays_the_reference(
    trained_estimator: trainer.TPUEstimator,
) -> None:
    # w = 0.5 after the first step: the loss is (1 - 0.5)**2 / 2.
    assert trained_estimator.evaluate(programs.ones(), steps=1)["loss"] == 0.125
    restarted = BestExporter("best", receiver_fn)
    did_export = [bool(call(restarted, trained_estimator, loss=loss)) for loss in (3.0, 2.0, 0.12)]
    assert did_export == [True, False, True]


def test_without_a_pattern_earlier_runs_are_forgotten(
    trained_estimator: trainer.TPUEstimator,
) -> None:
    trained_estimator.evaluate(programs.ones(), steps=1)
    restarted = BestExporter("best", receiver_fn, event_file_pattern=None)
    assert [bool(call(restarted, trained_estimator, loss=loss)) for loss in (3.0, 2.0)] == [
        True,
        True,
    ]


def test_compare_fn_can_compare_another_metric(trained_estimator: trainer.TPUEstimator) -> None:
    def more_steps(best_eval_result: Any, current_eval_result: Any) -> bool:
        return bool(best_eval_result["global_step"] < current_eval_result["global_step"])

    exporter = BestExporter("best", receiver_fn, compare_fn=more_steps)
    assert call(exporter, trained_estimator, loss=2.0)
    assert not call(exporter, trained_estimator, loss=1.0)


def test_compare_fn_can_have_settings_of_its_own(trained_estimator: trainer.TPUEstimator) -> None:
    def less(best_eval_result: Any, current_eval_result: Any, key: str) -> bool:
        return bool(current_eval_result[key] < best_eval_result[key])

    def half(best_eval_result: Any, current_eval_result: Any, *, factor: float = 0.5) -> bool:
        return bool(current_eval_result["loss"] <= factor * best_eval_result["loss"])

    def any_others(best_eval_result: Any, current_eval_result: Any, **others: Any) -> bool:
        return less(best_eval_result, current_eval_result, "loss")

    for compare_fn, expected in (
        (functools.partial(less, key="loss"), [True, True, True]),
        (half, [True, False, True]),
        (any_others, [True, True, True]),
    ):
        exporter = BestExporter("best", receiver_fn, compare_fn=compare_fn)
        exported = [bool(call(exporter, trained_estimator, loss=loss)) for loss in (4.0, 3.0, 1.0)]
        assert exported == expected


@pytest.mark.slow
def test_exporters_work_in_train_and_evaluate(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, iterations_per_loop=1, save_checkpoints_steps=2)
    exporters = [
        FinalExporter("final", receiver_fn),
        BestExporter("best", receiver_fn, exports_to_keep=1),
    ]
    spec = EvalSpec(programs.ones(), steps=1, exporters=exporters, throttle_secs=0)
    _, exported = train_and_evaluate(  # type: ignore[misc]
        estimator, TrainSpec(programs.ones(), max_steps=4), spec
    )
    for name, directory in zip(("final", "best"), exported, strict=True):
        assert list((tmp_path / "export" / name).iterdir()) == [Path(directory.decode())]


def test_a_compare_fn_must_take_both_results() -> None:
    with pytest.raises(ValueError, match="compare_fn is None"):
        BestExporter("best", receiver_fn, compare_fn=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="missing: best_eval_result; not expected: other"):
        BestExporter("best", receiver_fn, compare_fn=lambda current_eval_result, other: True)


def test_results_without_a_loss_need_a_compare_fn(trained_estimator: trainer.TPUEstimator) -> None:
    exporter = BestExporter("best", receiver_fn)
    call(exporter, trained_estimator)
    path = f"{trained_estimator.model_dir}/export/best"
    checkpoint = trained_estimator.latest_checkpoint()
    assert checkpoint is not None
    with pytest.raises(ValueError, match="current_eval_result cannot be empty or without a loss"):
        exporter.export(trained_estimator, path, checkpoint, {"global_step": 1}, False)


@pytest.mark.parametrize("exporter_type", [LatestExporter, BestExporter])
def test_at_least_one_export_is_kept(exporter_type: Any) -> None:
    with pytest.raises(ValueError, match="exports_to_keep is 0"):
        exporter_type("any", receiver_fn, exports_to_keep=0)
