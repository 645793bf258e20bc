"""The requests of a comparison are those of a model in request logs."""

from pathlib import Path

import numpy as np

from tests.tpuserve.saved_models import tf_records
from tpuserve.compare import requests
from tpuserve.compare.requests import METHODS, Requests, find_log_files
from tpuserve.proto import prediction_service_pb2 as pb


def log(model: str, signature: str = "", method: str = "predict_log") -> bytes:
    message = pb.PredictionLog()
    spec = getattr(message, method).request.model_spec
    spec.name, spec.signature_name = model, signature
    return message.SerializeToString()


def read(directory: Path, *records: bytes, **options: list[str]) -> Requests:
    (directory / "a.tfrecord").write_bytes(tf_records(*records[:1]))
    (directory / "b.tfrecord").write_bytes(tf_records(*records[1:]))
    settings = {"models": ["half"], "signatures": [], "methods": METHODS, **options}
    return Requests(find_log_files([directory]), **settings)  # type: ignore[arg-type]


def test_the_records_of_a_directory_come_in_the_order_of_the_names(tmp_path: Path) -> None:
    found = read(tmp_path, log("half"), log("", "other"), log("half", "", "classify_log"))
    assert [(each.where, each.method, each.signatures) for each in found] == [
        ("record 0 of a.tfrecord", "predict", ("serving_default",)),
        ("record 0 of b.tfrecord", "predict", ("other",)),
        ("record 1 of b.tfrecord", "classify", ("serving_default",)),
    ]


def test_other_records_are_left_out_and_counted(tmp_path: Path) -> None:
    unknown = b"\x3a\x00"  # The field 7 is a PredictStreamedLog.
    found = read(
        tmp_path,
        *(log("half"), log("half", "other"), log("sizes"), unknown, b"\xff"),
        log("half", "other", "regress_log"),
        signatures=["other"],
        methods=["predict"],
    )
    for _ in range(2):
        assert [each.where for each in found] == ["record 0 of b.tfrecord"]
        assert found.left_out == {
            "another signature": 1,
            "model sizes": 1,
            "a method that is never compared": 1,
            "no PredictionLog": 1,
            "regress, which the API of a side does not have": 1,
        }


def test_a_file_after_a_damaged_one_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, log("half"), log("half"))
    (tmp_path / "a.tfrecord").write_bytes(b"short")
    assert [each.where for each in found] == ["record 0 of b.tfrecord"]
    (damage,) = found.damages
    assert (
        "a.tfrecord ends at record 0, which is damaged: the file ends within its length" in damage
    )


def test_the_record_of_arrays_is_a_request(tmp_path: Path) -> None:
    record = requests.predict_record("double", {"x": np.array([1, 2], np.float32)})
    (request,) = read(tmp_path, record)
    assert request.signatures == ("double",)
    assert request.message.inputs["x"].tensor_content == np.array([1, 2], np.float32).tobytes()
