import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve import loader, metagraph, tags
from tpuserve.devices import Hardware
from tpuserve.errors import CheckpointNotFound, ExportError, InvalidSetting

pytestmark = pytest.mark.slow
v1 = tf.compat.v1

NO_TPU = Hardware()
EMULATED = Hardware(tpu_cores=1, hosts=1, is_emulated=True)


def receiver_fn() -> trainer.ServingInputReceiver:
    x = v1.placeholder(tf.float32, [None, 1], name="x")
    return trainer.ServingInputReceiver({"x": x}, {"x": x})


def export(
    tmp_path: Path, receiver: Callable[[], Any] = receiver_fn, steps: int = 1, **options: Any
) -> Path:
    estimator = programs.estimator(tmp_path / "model", **options)
    estimator.train(programs.ones(), max_steps=steps)
    return Path(estimator.export_saved_model(str(tmp_path / "export"), receiver).decode())


def answers(directory: Path, inputs: dict[str, Any], signature: str = "serving_default") -> Any:
    """The outputs of both metagraphs, which have to be equal."""
    cpu, tpu = (
        loader.load(directory, hardware=each).run(signature, inputs) for each in (NO_TPU, EMULATED)
    )
    for name in cpu:
        np.testing.assert_array_equal(cpu[name], tpu[name])
    return cpu


def test_both_metagraphs_have_the_same_signatures_and_answers(tmp_path: Path) -> None:
    directory = export(tmp_path)
    cpu, tpu = metagraph.read(directory).metagraphs
    assert (cpu.tags, tpu.tags) == (tags.SERVE, tags.SERVE_TPU)
    for name, signature in cpu.signatures.items():
        other = tpu.signatures[name]
        assert {k: (s.dtype, s.shape) for k, s in signature.outputs.items()} == {
            k: (s.dtype, s.shape) for k, s in other.outputs.items()
        }
    assert answers(directory, {"x": np.array([[3.0]], np.float32)})["y"] == 1.5


def test_the_version_directory_is_a_time_and_all_there_is(tmp_path: Path) -> None:
    directory = export(tmp_path)
    assert len(directory.name) == 10
    assert directory.name.isdigit()
    assert list(directory.parent.iterdir()) == [directory]


def test_either_metagraph_can_be_left_out(tmp_path: Path) -> None:
    found = metagraph.read(export(tmp_path / "a", export_to_tpu=False)).metagraphs
    assert [each.tags for each in found] == [tags.SERVE]
    found = metagraph.read(export(tmp_path / "b", export_to_cpu=False)).metagraphs
    assert [each.tags for each in found] == [tags.SERVE_TPU]


def test_leaving_both_out_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="export_to_cpu and export_to_tpu are both False"):
        export(tmp_path, export_to_cpu=False, export_to_tpu=False)


def test_classification_and_regression_outputs_work_from_both_metagraphs(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        if mode != trainer.ModeKeys.PREDICT:
            return spec
        y = spec.predictions["y"]
        outputs = {
            "serving_default": trainer.PredictOutput({"y": y}),
            "scores": trainer.ClassificationOutput(scores=tf.concat([y, -y], axis=1)),
            "value": trainer.RegressionOutput(y * 2.0),
        }
        return trainer.TPUEstimatorSpec(mode, predictions=spec.predictions, export_outputs=outputs)

    receiver = trainer.build_parsing_serving_input_receiver_fn(
        {"x": tf.io.FixedLenFeature([1], tf.float32)}
    )
    directory = export(tmp_path, receiver, model_fn=model_fn)
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=[3.0]))
    example = tf.train.Example(features=tf.train.Features(feature={"x": feature}))
    serialized = np.array([example.SerializeToString()], object)
    assert answers(directory, {"inputs": serialized}, "scores")["scores"].tolist() == [[1.5, -1.5]]
    assert answers(directory, {"inputs": serialized}, "value")["outputs"].tolist() == [[3.0]]


def test_a_raw_receiver_takes_the_features_with_an_open_batch(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        receiver = trainer.build_raw_serving_input_receiver_fn({"x": tf.zeros([7, 1])})
    directory = export(tmp_path, receiver)
    (spec,) = metagraph.read(directory).metagraphs[0].signatures["serving_default"].inputs.values()
    assert spec.shape == (None, 1)


def test_a_chosen_checkpoint_is_exported(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path / "model")
    estimator.train(programs.ones(), max_steps=4)
    directory = estimator.export_saved_model(
        str(tmp_path / "export"),
        receiver_fn,
        checkpoint_path=f"{estimator.model_dir}/model.ckpt-0",
    )
    assert answers(Path(directory.decode()), {"x": np.ones([1, 1], np.float32)})["y"] == 0.0


def test_params_have_no_batch_size_in_an_export(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        seen.append(dict(params))
        return programs.slope_model_fn(features, labels, mode, params)

    export(tmp_path, model_fn=model_fn, train_batch_size=2)
    training, *exporting = seen
    assert training == {"rate": 0.5, "use_tpu": False, "batch_size": 2}
    assert exporting == [{"rate": 0.5, "use_tpu": False}] * 2


def test_a_failing_model_fn_leaves_no_directory_behind(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        if mode == trainer.ModeKeys.PREDICT:
            raise RuntimeError("not exportable")
        return programs.slope_model_fn(features, labels, mode, params)

    with pytest.raises(RuntimeError, match="not exportable"):
        export(tmp_path, model_fn=model_fn)
    assert list((tmp_path / "export").iterdir()) == []


def test_a_model_that_was_never_trained_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match="Call train"):
        programs.estimator(tmp_path).export_saved_model(str(tmp_path / "export"), receiver_fn)


def test_features_that_the_model_leaves_alone_do_not_go_to_the_tpu(tmp_path: Path) -> None:
    def receiver() -> trainer.ServingInputReceiver:
        x = v1.placeholder(tf.float32, [None, 1], name="x")
        key = v1.placeholder(tf.string, [None], name="key")
        unread = tf.sparse.from_dense([[1.0]])
        return trainer.ServingInputReceiver(
            {"x": x, "key": key, "sparse": unread, "none": None}, {"x": x, "key": key}
        )

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        if mode != trainer.ModeKeys.PREDICT:
            return spec
        predictions = {**spec.predictions, "key": features["key"]}
        return trainer.TPUEstimatorSpec(mode, predictions=predictions)

    inputs = {"x": np.array([[3.0]], np.float32), "key": np.array([b"a"], object)}
    answer = answers(export(tmp_path, receiver, model_fn=model_fn), inputs)
    assert (answer["y"].tolist(), answer["key"].tolist()) == ([[1.5]], [b"a"])


def test_the_saver_of_the_models_scaffold_decides_what_is_saved(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        if mode != trainer.ModeKeys.PREDICT:
            return spec
        v1.get_variable("never_trained", [2])

        def scaffold_fn() -> Any:
            kept = [each for each in v1.global_variables() if each.op.name != "never_trained"]
            return v1.train.Scaffold(saver=v1.train.Saver(kept))

        return dataclasses.replace(spec, scaffold_fn=scaffold_fn)

    directory = export(tmp_path, model_fn=model_fn)
    saved = {name for name, _ in tf.train.list_variables(str(directory / "variables/variables"))}
    assert saved == {"w", "global_step"}
    assert answers(directory, {"x": np.array([[3.0]], np.float32)})["y"] == 1.5


@pytest.mark.parametrize("receiver", [None, lambda: {"x": 1}], ids=["none", "dict"])
def test_what_is_no_serving_input_receiver_fn_is_refused(tmp_path: Path, receiver: Any) -> None:
    with pytest.raises(
        InvalidSetting, match=r"serving_input_receiver_fn .*trainer\.ServingInputReceiver"
    ):
        export(tmp_path, receiver)
