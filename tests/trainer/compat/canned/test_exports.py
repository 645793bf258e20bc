"""Exports of canned estimators are classified with, converted and verified."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from tensorflow_serving.apis import input_pb2

import trainer
from tests.processes import ServeProcess, serving
from tests.server.frontends.grpc.clients import Client
from tests.trainer.compat.canned import models
from tests.trainer.compat.program_runner import make_example_inputs
from tpuserve import cli

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("canned")
    classifier = models.build(trainer, "DNNLinearCombinedClassifier", directory / "model")
    classifier.train(models.input_fn, steps=20)
    receiver = trainer.build_parsing_serving_input_receiver_fn(models.SPEC)
    classifier.export_saved_model(str(directory / "export"), receiver)
    return classifier


@pytest.fixture(scope="module")
def server(classifier: Any) -> Iterator[ServeProcess]:
    with serving(Path(classifier.model_dir).parent / "export") as server:
        yield server


@pytest.fixture(scope="module")
def probabilities(classifier: Any) -> Any:
    """Return the probabilities of both classes for the first two rows: [2, 2]."""
    predicted = classifier.predict(models.input_fn, "probabilities")
    return np.array([next(predicted)["probabilities"] for _ in range(2)])


EXAMPLES = [{"number": float(models.NUMBERS[row]), "word": models.WORDS[row]} for row in range(2)]


def test_rest_classifies_and_regresses(server: ServeProcess, probabilities: Any) -> None:
    def post(verb: str, signature: str) -> Any:
        body = {"signature_name": signature, "examples": EXAMPLES}
        response = httpx.post(f"http://{server.rest}/v1/models/half:{verb}", json=body)
        assert response.status_code == 200, response.text
        return response.json()["results"]

    for row, classes in enumerate(post("classify", "classification")):
        assert [label for label, _ in classes] == ["0", "1"]
        np.testing.assert_allclose([score for _, score in classes], probabilities[row], rtol=1e-5)
    np.testing.assert_allclose(post("regress", "regression"), probabilities[:, 1], rtol=1e-5)


def test_grpc_classifies_and_regresses_in_one_request(
    server: ServeProcess, probabilities: Any
) -> None:
    examples = input_pb2.Input()
    for row in EXAMPLES:
        features = {"number": [row["number"]], "word": str(row["word"]).encode()}
        serialized = make_example_inputs(features)["examples"][0]
        examples.example_list.examples.add().ParseFromString(serialized)
    classify = {"name": "half", "signature_name": "classification"}
    regress = {"name": "half", "signature_name": "regression"}
    with grpc.insecure_channel(server.rpc) as channel:
        classified, regressed = (
            Client(channel)
            .multi_inference(
                examples,
                (classify, "tensorflow/serving/classify"),
                (regress, "tensorflow/serving/regress"),
            )
            .results
        )
    classes = classified.classification_result.classifications
    scores = [[one.score for one in row.classes] for row in classes]
    np.testing.assert_allclose(scores, probabilities, rtol=1e-5)
    values = [row.value for row in regressed.regression_result.regressions]
    np.testing.assert_allclose(values, probabilities[:, 1], rtol=1e-5)


def test_an_export_is_converted_for_a_tpu_and_verified(classifier: Any, tmp_path: Path) -> None:
    (export,) = (Path(classifier.model_dir).parent / "export").iterdir()
    for command in (["convert", str(export), str(tmp_path)], ["verify", str(tmp_path)]):
        result = CliRunner().invoke(cli.cli, command)
        assert result.exit_code == 0, result.output
    assert "passed: largest absolute difference" in result.output
