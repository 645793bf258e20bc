from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import exports, programs
from tpuserve.errors import ExportError, InvalidSetting
from tpuserve.saved_model import metagraph

v1 = tf.compat.v1

TRAIN, EVAL, PREDICT = "train", "eval", "infer"


def serving() -> Any:
    x = v1.placeholder(tf.float32, [None, 1], name="x")
    return trainer.ServingInputReceiver({"x": x}, {"x": x})


def supervised_receiver() -> Any:
    shape = tf.zeros([1, 1])
    return trainer.build_raw_supervised_input_receiver_fn({"x": shape}, {"y": shape})()


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    labels = labels["y"] if isinstance(labels, dict) else labels
    return programs.slope_model_fn(features, labels, mode, params)


@pytest.fixture
def trained_estimator(tmp_path: Path) -> trainer.TPUEstimator:
    estimator = programs.estimator(tmp_path / "model", model_fn=model_fn)
    return estimator.train(programs.ones(), max_steps=1)


@pytest.mark.slow
def test_all_modes_are_exported_with_tags_and_signatures_of_their_own(
    tmp_path: Path, trained_estimator: trainer.TPUEstimator
) -> None:
    functions = {PREDICT: serving, EVAL: supervised_receiver, TRAIN: supervised_receiver}
    path = trained_estimator.experimental_export_all_saved_models(
        str(tmp_path / "export"), functions
    )
    metagraphs = metagraph.read_saved_model(Path(path.decode())).metagraphs
    assert [sorted(graph.tags) for graph in metagraphs] == [
        ["train"],
        ["eval"],
        ["serve"],
        ["serve", "tpu"],
    ]
    train, evaluation, *_ = metagraphs
    assert set(train.signatures["train"].inputs) == {"x", "y"}
    assert set(train.signatures["train"].outputs) == {"loss"}
    outputs = set(evaluation.signatures["eval"].outputs)
    assert outputs == {"loss", "metrics/mean_y/value", "metrics/mean_y/update_op"}


def test_a_step_can_be_run_from_what_training_exports(
    tmp_path: Path, trained_estimator: trainer.TPUEstimator
) -> None:
    functions = {TRAIN: supervised_receiver}
    path = trained_estimator.experimental_export_all_saved_models(
        str(tmp_path / "export"), functions
    )
    with tf.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.load(session, ["train"], path.decode())
        (train_op,) = v1.get_collection("saved_model_train_op")
        inputs = loaded.signature_def["train"].inputs
        session.run(train_op, {inputs["x"].name: [[1.0]], inputs["y"].name: [[1.0]]})
        assert session.run(v1.train.get_global_step()) == 2


def test_a_mode_without_a_tpu_metagraph_needs_the_other(
    tmp_path: Path, trained_estimator: trainer.TPUEstimator
) -> None:
    estimator = programs.estimator(
        Path(trained_estimator.model_dir), model_fn=model_fn, export_to_cpu=False
    )
    with pytest.raises(ExportError, match="export_to_cpu is False, .* for mode 'infer' alone"):
        estimator.export_saved_model(
            str(tmp_path / "e"), supervised_receiver, experimental_mode=EVAL
        )


def test_the_modes_go_with_a_tpu_metagraph_of_version_2(
    tmp_path: Path, trained_estimator: trainer.TPUEstimator
) -> None:
    estimator = programs.estimator(
        Path(trained_estimator.model_dir),
        model_fn=exports.wrap_model_fn(None, model_fn),
        export_saved_model_api_version=2,
    )
    functions = {PREDICT: serving, TRAIN: supervised_receiver}
    path = estimator.experimental_export_all_saved_models(str(tmp_path / "export"), functions)
    metagraphs = metagraph.read_saved_model(Path(path.decode())).metagraphs
    assert [sorted(graph.tags) for graph in metagraphs] == [["train"], ["serve"], ["serve", "tpu"]]
    assert [len(graph.computations) for graph in metagraphs] == [0, 0, 1]


def test_one_mode_can_be_exported_and_evaluates_what_it_is_fed(
    tmp_path: Path, trained_estimator: trainer.TPUEstimator
) -> None:
    path = trained_estimator.export_saved_model(
        str(tmp_path), supervised_receiver, experimental_mode=EVAL
    )
    with tf.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.load(session, ["eval"], path.decode())
        signature = loaded.signature_def["eval"]
        feeds = {info.name: [[1.0]] for info in signature.inputs.values()}
        # w is 0.5. For x = 1 and the label 1 the error of y = w x is 0.5 too.
        assert session.run(signature.outputs["loss"].name, feeds) == 0.125


def test_a_plain_estimator_exports_no_tpu_metagraph(tmp_path: Path) -> None:
    def plain(features: Any, labels: Any, mode: str, params: Any) -> Any:
        return model_fn(features, labels, mode, params).as_estimator_spec()

    estimator = trainer.Estimator(plain, str(tmp_path / "model"), params={"rate": 0.5})
    estimator.train(programs.ones(), steps=1)
    path = estimator.export_savedmodel(str(tmp_path / "export"), serving)
    assert [
        sorted(graph.tags) for graph in metagraph.read_saved_model(Path(path.decode())).metagraphs
    ] == [["serve"]]


def test_default_attributes_are_left_out_where_asked(
    tmp_path: Path, trained_estimator: trainer.TPUEstimator
) -> None:
    sizes = [
        (Path(path.decode()) / "saved_model.pb").stat().st_size
        for path in (
            trained_estimator.export_savedmodel(str(tmp_path / "a"), serving),
            trained_estimator.export_savedmodel(
                str(tmp_path / "b"), serving, strip_default_attrs=True
            ),
        )
    ]
    assert sizes[0] > sizes[1]


def test_modes_that_are_none_are_refused(
    tmp_path: Path, trained_estimator: trainer.TPUEstimator
) -> None:
    for functions in ({}, {"fit": serving}):
        with pytest.raises(InvalidSetting, match="no valid modes for export found"):
            trained_estimator.experimental_export_all_saved_models(str(tmp_path), functions)


def test_variables_that_the_checkpoint_lacks_are_named(
    tmp_path: Path, trained_estimator: trainer.TPUEstimator
) -> None:
    def larger(features: Any, labels: Any, mode: str, params: Any) -> Any:
        v1.get_variable("later", [2])
        return model_fn(features, labels, mode, params)

    estimator = programs.estimator(Path(trained_estimator.model_dir), model_fn=larger)
    with pytest.raises(ExportError, match="missing variables later"):
        estimator.export_saved_model(str(tmp_path / "export"), serving)
