import dataclasses
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.util import deprecation

import trainer
from tests.trainer import programs
from tests.trainer.exports import (
    answers,
    check_three_outputs,
    export,
    load_by_tensorflow,
    parsing,
    raw,
    same_signatures,
    three_outputs,
)
from tpuserve import tags
from tpuserve.errors import CheckpointNotFound, ExportError, InvalidSetting
from tpuserve.export import debug_info
from tpuserve.saved_model import metagraph

v1 = tf.compat.v1


def test_both_metagraphs_have_the_same_signatures_and_answers(tmp_path: Path) -> None:
    directory = export(tmp_path)
    metagraphs = metagraph.read_saved_model(directory).metagraphs
    assert [graph.tags for graph in metagraphs] == [tags.SERVE, tags.SERVE_TPU]
    assert same_signatures(directory) == {"serving_default"}
    assert answers(directory, {"x": np.array([[3.0]], np.float32)})["y"] == 1.5


@pytest.fixture
def _no_resource_variables() -> Iterator[None]:
    v1.disable_resource_variables()
    yield
    v1.enable_resource_variables()


@pytest.mark.usefixtures("_no_resource_variables")
def test_an_export_of_tensorflow_1_has_a_variables_value_under_its_name(tmp_path: Path) -> None:
    directory = export(tmp_path)
    with tf.Graph().as_default(), v1.Session() as session:
        v1.saved_model.loader.load(session, ["serve"], str(directory))
        assert session.run(["w:0", "w/read:0"]) == [0.5, 0.5]
        assert [variable.name for variable in v1.global_variables()] == ["global_step:0", "w:0"]
    assert answers(directory, {"x": np.array([[3.0]], np.float32)})["y"] == 1.5


def test_the_version_directory_is_a_time_and_all_there_is(tmp_path: Path) -> None:
    directory = export(tmp_path)
    assert len(directory.name) == 10
    assert directory.name.isdigit()
    assert list(directory.parent.iterdir()) == [directory]


@pytest.mark.slow
def test_either_metagraph_can_be_left_out(tmp_path: Path) -> None:
    metagraphs = metagraph.read_saved_model(export(tmp_path / "a", export_to_tpu=False)).metagraphs
    assert [graph.tags for graph in metagraphs] == [tags.SERVE]
    metagraphs = metagraph.read_saved_model(export(tmp_path / "b", export_to_cpu=False)).metagraphs
    assert [graph.tags for graph in metagraphs] == [tags.SERVE_TPU]


def test_leaving_both_out_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="export_to_cpu and export_to_tpu are both False"):
        export(tmp_path, export_to_cpu=False, export_to_tpu=False)


@pytest.mark.slow
def test_all_kinds_of_outputs_work_from_both_metagraphs(tmp_path: Path) -> None:
    check_three_outputs(export(tmp_path, parsing, model_fn=three_outputs))


def test_tensorflows_own_loader_takes_each_metagraph_by_its_exact_tags(tmp_path: Path) -> None:
    directory = export(tmp_path)
    for tag_set in (tags.SERVE, tags.SERVE_TPU):
        load_by_tensorflow(directory, sorted(tag_set))
    for wrong in (["tpu"], ["serve", "tpu", "x"]):
        with pytest.raises(RuntimeError, match="could not be found in SavedModel"):
            load_by_tensorflow(directory, wrong)


def test_the_line_of_model_fn_that_made_a_node_is_kept(tmp_path: Path) -> None:
    lines = inspect.getsourcelines(programs.slope_model_fn)
    (line,) = (number for number, text in enumerate(lines[0], lines[1]) if "* w" in text)
    file = os.path.relpath(programs.__file__)
    assert debug_info.load_line_lookup(export(tmp_path))("mul") == f"{file}:{line}"


def test_extra_assets_and_text_are_written_where_asked(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("hello")
    estimator = programs.estimator(tmp_path / "model").train(programs.ones(), max_steps=1)
    for method in (estimator.export_saved_model, estimator.export_savedmodel):
        path = method(str(tmp_path / "export"), raw, {"docs/a.txt": str(note)}, as_text=True)
        directory = Path(path.decode())
        assert (directory / "assets.extra/docs/a.txt").read_text() == "hello"
        assert (directory / "saved_model.pbtxt").exists()
        assert not (directory / "saved_model.pb").exists()


def test_a_raw_receiver_takes_the_features_with_an_open_batch(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        receiver = trainer.build_raw_serving_input_receiver_fn({"x": tf.zeros([7, 1])})
    directory = export(tmp_path, receiver)
    (spec,) = (
        metagraph.read_saved_model(directory)
        .metagraphs[0]
        .signatures["serving_default"]
        .inputs.values()
    )
    assert spec.shape == (None, 1)


def test_a_chosen_checkpoint_is_exported(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path / "model")
    estimator.train(programs.ones(), max_steps=4)
    directory = estimator.export_saved_model(
        str(tmp_path / "export"),
        raw,
        checkpoint_path=f"{estimator.model_dir}/model.ckpt-0",
    )
    assert answers(Path(directory.decode()), {"x": np.ones([1, 1], np.float32)})["y"] == 0.0


def test_params_have_no_batch_size_in_an_export(tmp_path: Path) -> None:
    all_params: list[dict[str, Any]] = []

    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        all_params.append(dict(params))
        return programs.slope_model_fn(features, labels, mode, params)

    export(tmp_path, model_fn=model_fn, train_batch_size=2)
    training, *exporting = all_params
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
        programs.estimator(tmp_path).export_saved_model(str(tmp_path / "export"), raw)


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
            variables = [var for var in v1.global_variables() if var.op.name != "never_trained"]
            return v1.train.Scaffold(saver=v1.train.Saver(variables))

        return dataclasses.replace(spec, scaffold_fn=scaffold_fn)

    directory = export(tmp_path, model_fn=model_fn)
    saved = {name for name, _ in tf.train.list_variables(str(directory / "variables/variables"))}
    assert saved == {"w", "global_step"}
    assert answers(directory, {"x": np.array([[3.0]], np.float32)})["y"] == 1.5


@pytest.mark.slow
def test_keys_of_features_may_be_numbers_and_strings(tmp_path: Path) -> None:
    def input_fn() -> Any:
        return {"x": tf.ones([2, 1]), 43: tf.zeros([2, 1])}, tf.ones([2, 1])

    def receiver() -> trainer.ServingInputReceiver:
        x = v1.placeholder(tf.float32, [None, 1])
        return trainer.ServingInputReceiver({"x": x, 43: x}, {"x": x})

    estimator = programs.estimator(tmp_path, export_to_tpu=False)
    estimator.train(input_fn, max_steps=1)
    assert next(estimator.predict(input_fn)) == {"y": 0.5}
    # Half the square of the error 0.5.
    assert estimator.evaluate(input_fn, steps=1)["loss"] == 0.125
    directory = estimator.export_saved_model(str(tmp_path / "export"), receiver).decode()
    serve = tf.saved_model.load(directory).signatures["serving_default"]
    assert serve(x=tf.constant([[3.0]]))["y"].numpy() == 1.5


@pytest.mark.slow
def test_a_checkpoint_object_as_saver_decides_what_is_saved(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        def scaffold_fn() -> Any:
            (w,) = v1.global_variables("w")
            step = v1.train.get_global_step()
            return v1.train.Scaffold(saver=tf.train.Checkpoint(slope=w, step=step))

        spec = programs.slope_model_fn(features, labels, mode, params)
        return dataclasses.replace(spec, scaffold_fn=scaffold_fn)

    export(tmp_path, model_fn=model_fn)
    # Another training until step 1 finds that step in the checkpoint.
    directory = export(tmp_path, model_fn=model_fn)
    variables = tf.train.list_variables(str(tmp_path / "model"))
    saved = {name.partition("/")[0] for name, _ in variables}
    assert saved == {"_CHECKPOINTABLE_OBJECT_GRAPH", "slope", "step"}
    assert answers(directory, {"x": np.array([[3.0]], np.float32)})["y"] == 1.5


@pytest.mark.parametrize("receiver", [None, lambda: {"x": 1}], ids=["none", "dict"])
def test_what_is_no_serving_input_receiver_fn_is_refused(tmp_path: Path, receiver: Any) -> None:
    with pytest.raises(
        InvalidSetting, match=r"serving_input_receiver_fn .*trainer\.ServingInputReceiver"
    ):
        export(tmp_path, receiver)


def on_strings(features: Any, labels: Any, mode: str, params: Any) -> Any:
    if mode != trainer.ModeKeys.PREDICT:
        return programs.slope_model_fn(features, labels, mode, params)
    spec = programs.slope_model_fn(features, labels, mode, params)
    return spec._replace(predictions={"y": tf.as_string(spec.predictions["y"], name="spelled")})


def test_strings_on_the_tpu_are_refused_with_their_op(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="model_fn has strings on the TPU, in AsString 'spelled'"):
        export(tmp_path, model_fn=on_strings)
    assert list((tmp_path / "export").iterdir()) == []


def test_an_export_logs_nothing_about_functions_that_we_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deprecation._PRINTED_WARNING.clear()
    export(tmp_path)
    assert "deprecated" not in caplog.text
