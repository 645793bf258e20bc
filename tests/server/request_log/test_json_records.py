"""A request log in JSON has a line for each row, which `tpuserve predict` reads as its input."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from server.config.model_config import RequestLogging
from server.dataplane import ModelSpec, Prediction
from server.dataplane.results import Classification, Regression
from server.request_log.log import InferenceLogEntry, PredictLogEntry
from server.request_log.records import encode
from tpuserve.errors import InvalidJson
from tpuserve.prediction.batch import Position
from tpuserve.prediction.readers.json_lines import read_json_batches
from tpuserve.saved_model.signature import Signature, TensorSpec

NOON = 1_700_000_000.25
CONFIG = RequestLogging("", "/logs/a", 1, "jsonl")
INPUTS = {
    "x": np.array([[0.1, 2], [3, 4]], np.float32),
    "text": np.array([b"a\n", b"\xff"], object),
}
OUTPUTS = {"y": np.array([1, 2]), "half": np.array([0.5, 1.5], ml_dtypes.bfloat16)}


def lines(entry: PredictLogEntry | InferenceLogEntry) -> list[Any]:
    return [json.loads(line) for line in encode(entry, CONFIG, NOON).splitlines()]


def predict(inputs: Any = INPUTS, outputs: Any = OUTPUTS) -> PredictLogEntry:
    return PredictLogEntry(Prediction("m", 3, "f", outputs), inputs, ())


def read(path: Path, entry: PredictLogEntry | InferenceLogEntry, name: str) -> Any:
    path.write_bytes(encode(entry, CONFIG, NOON))
    specs = {"x": TensorSpec("x:0", "float32", None), "text": TensorSpec("t:0", "string", None)}
    signatures = {
        "f": Signature(specs, {}),
        "regress": Signature({"inputs": TensorSpec("i:0", "string", None)}, {}),
    }
    (batch,) = read_json_batches(str(path), signatures, name, 10, Position())
    return batch.inputs


def test_row_has_its_request_and_its_answer_in_one_line() -> None:
    first, second = lines(predict())
    assert first == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "model": "m",
        "version": 3,
        "signature_name": "f",
        "row": 0,
        "inputs": {"x": [0.1, 2.0], "text": "a\n"},
        "outputs": {"y": 1, "half": 0.5},
    }
    assert (second["row"], second["inputs"]["text"]) == (1, {"b64": "/w=="})


def test_predict_reads_what_was_logged(tmp_path: Path) -> None:
    inputs = read(tmp_path / "log", predict(), "f")
    assert inputs.keys() == INPUTS.keys()
    for alias, array in INPUTS.items():
        np.testing.assert_array_equal(inputs[alias], array)


def test_examples_and_their_results_have_the_aliases_of_the_signature(tmp_path: Path) -> None:
    classes = np.array([[b"short", b"long"]], object)
    answers = (
        Classification("m", 3, "classify", classes, None),
        Regression("m", 3, "regress", np.array([4], np.float32)),
    )
    tasks = ((ModelSpec("m"), "tensorflow/serving/classify"),) * 2
    first, second = lines(InferenceLogEntry(tasks, answers, (b"\xff\x00",)))
    assert (first["signature_name"], first["outputs"]) == (
        "classify",
        {"classes": ["short", "long"]},
    )
    assert (second["signature_name"], second["outputs"]) == ("regress", {"outputs": 4.0})
    assert first["inputs"] == second["inputs"] == {"inputs": {"b64": "/wA="}}
    entry = InferenceLogEntry((), answers[1:], (b"\xff\x00",))
    assert read(tmp_path / "log", entry, "regress")["inputs"].tolist() == [b"\xff\x00"]


@pytest.mark.parametrize(
    "inputs", [{"x": np.ones(3, np.float32)}, {"x": np.array(2.5)}, {"x": np.array(b"a", object)}]
)
def test_request_without_rows_is_one_line_that_predict_refuses(tmp_path: Path, inputs: Any) -> None:
    entry = predict(inputs)
    (line,) = lines(entry)
    assert line["row"] is None
    assert line["inputs"] == {"x": [1.0] * 3} or line["inputs"]["x"] in (2.5, "a")
    with pytest.raises(InvalidJson, match="^line 1 of .* is a request without rows. Log such"):
        read(tmp_path / "log", entry, "f")


def test_line_of_another_signature_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidJson, match="is of the signature 'f', and 'regress' runs. Give --si"):
        read(tmp_path / "log", predict(), "regress")
