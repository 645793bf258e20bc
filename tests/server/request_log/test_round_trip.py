"""The request log of a server can serve as the warm-up file of the model's next version."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from server.config.model_config import RequestLogging
from server.dataplane import ModelSpec
from server.models.manager import Manager
from server.request_log import RequestLog
from server.warmup import FileWarmUp
from tests.server.aspired_versions import aspire
from tests.server.dataplane.models import ExamplesModel
from tests.server.waiting_data_plane import WaitingDataPlane
from tests.tpuserve.saved_models import copy_of_words
from tpuserve import cli
from tpuserve.saved_model import warm_up_file

M, REGRESS = ModelSpec("m"), ModelSpec("m", signature_name="regress")


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the log file of a server that has answered one request of each kind."""
    directory = tmp_path_factory.mktemp("logs")
    log = RequestLog(clock=lambda: 1_700_000_000.5)
    log.configure({"m": RequestLogging("file", str(directory / "requests"), 1)})
    manager = Manager(lambda _: ExamplesModel())
    aspire(manager, "m", {3: Path("/models/m/3")})
    dataplane = WaitingDataPlane(manager, request_log=log)
    example = tf.train.Example()
    example.features.feature["x"].int64_list.value.append(5)
    examples = [example.SerializeToString()] * 2
    fed = {"inputs": np.array([b"abcd"], object)}
    dataplane.predict(REGRESS, lambda _: fed, ["outputs"])
    dataplane.classify(M, examples)
    dataplane.regress(REGRESS, examples)
    dataplane.multi_inference(
        [(M, "tensorflow/serving/classify"), (REGRESS, "tensorflow/serving/regress")], examples
    )
    log.close(60)
    (path,) = directory.iterdir()
    return path


def read_logs(path: Path) -> list[prediction_log_pb2.PredictionLog]:
    records = (record.numpy() for record in tf.data.TFRecordDataset(str(path)))
    return [prediction_log_pb2.PredictionLog.FromString(record) for record in records]


def test_requests_and_answers_are_logged_as_tensorflow_reads_them(log_file: Path) -> None:
    predict, classify, regress, multi = read_logs(log_file)
    spec = predict.predict_log.request.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("m", 3, "regress")
    assert predict.predict_log.request.inputs["inputs"].string_val == [b"abcd"]
    assert predict.predict_log.request.output_filter == ["outputs"]
    assert predict.predict_log.response.outputs["outputs"].float_val == [4]
    assert predict.log_metadata.timestamp_secs == 1_700_000_000
    assert predict.log_metadata.sampling_config.sampling_rate == 1
    (first, _) = classify.classify_log.request.input.example_list.examples
    assert first.features.feature["x"].int64_list.value == [5]
    (classes, _) = classify.classify_log.response.result.classifications
    assert [classification.label for classification in classes.classes] == ["short", "long"]
    assert len(regress.regress_log.response.result.regressions) == 2
    assert [task.method_name for task in multi.multi_inference_log.request.tasks] == [
        "tensorflow/serving/classify",
        "tensorflow/serving/regress",
    ]
    assert [
        result.WhichOneof("result") for result in multi.multi_inference_log.response.results
    ] == [
        "classification_result",
        "regression_result",
    ]


def test_log_is_a_warm_up_file(log_file: Path, tmp_path: Path) -> None:
    (tmp_path / warm_up_file.PATH).parent.mkdir()
    shutil.copy(log_file, tmp_path / warm_up_file.PATH)
    model = ExamplesModel()
    FileWarmUp(2)(model, tmp_path)
    assert model.runs == [
        *["regress"] * 2,
        *["serving_default"] * 2,
        *["regress"] * 2,
        *["serving_default", "regress"] * 2,
    ]


def test_inspect_shows_what_was_logged(
    log_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = copy_of_words(tmp_path / "words")
    shutil.copy(log_file, directory / warm_up_file.PATH)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["inspect", str(directory), "--json"])
    assert exit_.value.code == 0
    entries = json.loads(capsys.readouterr().out)["warm_up"]
    assert [(entry["kind"], entry["signature_name"]) for entry in entries] == [
        ("predict", "regress"),
        ("classify", "serving_default"),
        ("regress", "regress"),
        ("multi_inference", "serving_default, regress"),
    ]
