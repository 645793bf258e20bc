"""Files that TensorFlow 2.15's DNNLinearCombinedClassifier wrote, in original/, go on here."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.conformance.exports import served_model
from tests.trainer import exports, programs
from tests.trainer.compat.canned import models
from tests.trainer.compat.canned.original import model
from tpuserve import tags
from tpuserve.errors import CheckpointMismatch

VERSIONS = ["v1", "v2"]


def classifier(version: str, model_dir: Path, iterations: int | None = None, **options: Any) -> Any:
    """Return our classifier; with `iterations`, it makes so many steps in a `session.run`."""
    config = trainer.RunConfig(model_dir=str(model_dir), save_summary_steps=1)
    if iterations is not None:
        config = config.replace(tpu_config=trainer.TPUConfig(iterations))
    module = models.v1_module() if version == "v1" else trainer
    return module.DNNLinearCombinedClassifier(**model.arguments() | options, config=config)


def copy_checkpoint(version: str, tmp_path: Path) -> Path:
    """Return a model_dir with the original's checkpoint."""
    return shutil.copytree(model.DIRECTORY / version, tmp_path / "model")


def facts(version: str) -> Any:
    """Return what the original computed from its checkpoint."""
    return json.loads((model.DIRECTORY / version / "facts.json").read_text())


def repeated() -> Any:
    return model.dataset().repeat()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("iterations", [None, 3])
@pytest.mark.numeric
@pytest.mark.slow
def test_training_goes_on_with_the_losses_of_the_original(
    version: str, iterations: int | None, tmp_path: Path
) -> None:
    model_dir = copy_checkpoint(version, tmp_path)
    classifier(version, model_dir, iterations).train(repeated, steps=3)
    expected = dict(zip((6, 7, 8), facts(version)["losses"], strict=True))
    if iterations:
        expected = {8: expected[8]}
    assert programs.scalars(model_dir)["loss"] == pytest.approx(expected, 1e-6)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.numeric
@pytest.mark.slow
def test_metrics_and_predictions_are_those_of_the_original(version: str, tmp_path: Path) -> None:
    estimator = classifier(version, copy_checkpoint(version, tmp_path))
    assert estimator.evaluate(model.dataset) == pytest.approx(facts(version)["metrics"], 1e-6)
    expected_rows = facts(version)["predictions"]
    rows = itertools.islice(estimator.predict(model.dataset), len(expected_rows))
    for actual, expected in zip(rows, expected_rows, strict=True):
        check_prediction(actual, expected)


def check_prediction(actual: Any, expected: Any) -> None:
    """Check a prediction, an array or a list for each key, against one of facts.json."""
    assert actual.keys() == expected.keys()
    for key, values in expected.items():
        if isinstance(values[0], str):
            assert [tf.compat.as_str(text) for text in actual[key]] == values
        else:
            np.testing.assert_allclose(actual[key], values, 1e-6, 1e-7, err_msg=key)


@pytest.mark.parametrize(
    ("version", "source"), [("v1", ""), ("v2", ""), ("v2", "export"), ("v2", "export/variables")]
)
@pytest.mark.numeric
@pytest.mark.slow
def test_a_warm_start_begins_with_the_loss_of_the_original(
    version: str, source: str, tmp_path: Path
) -> None:
    warm = str(model.DIRECTORY / version / source)
    classifier(version, tmp_path, warm_start_from=warm).train(repeated, steps=1)
    expected = {1: facts(version)["losses"][0]}
    assert programs.scalars(tmp_path)["loss"] == pytest.approx(expected, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"dnn_hidden_units": [5, 3]}, "'dnn/hiddenlayer_0/kernel' has shape [3, 5] in the model"),
        (
            {"linear_feature_columns": [tf.feature_column.numeric_column("age")]},
            "lacks variables of the model: linear/linear_model/age/weights. Use the model",
        ),
    ],
)
def test_a_checkpoint_of_other_columns_or_layers_is_refused(
    options: dict[str, Any], difference: str, tmp_path: Path
) -> None:
    estimator = classifier("v2", copy_checkpoint("v2", tmp_path), **options)
    with pytest.raises(CheckpointMismatch) as refused:
        estimator.evaluate(model.dataset)
    assert difference in str(refused.value)


def test_the_export_answers_requests_as_the_original(tmp_path: Path) -> None:
    directory = shutil.copytree(model.DIRECTORY / "v2" / "export", tmp_path / "m" / "1")
    expected = facts("v2")["predictions"]
    rows = {"examples": [{name: values[i] for name, values in model.ROWS.items()} for i in (0, 1)]}
    text = [work.encode() for (work,) in model.ROWS["work"][:2]]
    numbers = {name: [row[0] for row in model.ROWS[name][:2]] for name in ("age", "hours")}
    serialized = {"examples": exports.examples(**numbers, work=text)}
    with served_model.serving(directory, tags.SERVE) as served:
        classes = served.post("classify", rows)["results"]
        values = served.post("regress", {"signature_name": "regression", **rows})["results"]
        by_rest = served.ask_rest("predict", serialized, list(expected[0]))
        by_grpc = served.ask_grpc("predict", serialized)
    for row, prediction in enumerate(expected):
        labels, scores = zip(*classes[row], strict=True)
        assert list(labels) == prediction["all_classes"]
        assert scores == pytest.approx(prediction["probabilities"], 1e-6)
        assert values[row] == pytest.approx(prediction["logistic"][0], 1e-6)
        for answer in (by_rest, by_grpc):
            check_prediction({name: output[row] for name, output in answer.items()}, prediction)
