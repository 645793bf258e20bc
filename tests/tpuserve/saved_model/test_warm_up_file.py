from pathlib import Path

import pytest

from tests.tpuserve import saved_models
from tests.tpuserve.saved_models import WORDS, tf_records
from tpuserve.errors import DamagedSavedModel
from tpuserve.proto import prediction_log_pb2 as pb
from tpuserve.proto import saved_model_pb2
from tpuserve.saved_model import warm_up_file
from tpuserve.saved_model.signature import TensorSpec
from tpuserve.saved_model.warm_up_file import WarmUpRecord


def read_logs(directory: Path, *logs: pb.PredictionLog) -> tuple[WarmUpRecord, ...]:
    path = directory / warm_up_file.PATH
    path.parent.mkdir()
    path.write_bytes(tf_records(*(log.SerializeToString() for log in logs)))
    return warm_up_file.read_warm_up_file(directory)


def test_warm_up_file_of_tensorflow_is_read() -> None:
    expected = [
        WarmUpRecord("predict", "serving_default", {"words": TensorSpec("words", "string", (n, 5))})
        for n in (1, 4)
    ]
    assert warm_up_file.read_warm_up_file(WORDS) == tuple(expected)


def test_model_without_a_warm_up_file_has_no_requests(tmp_path: Path) -> None:
    assert warm_up_file.read_warm_up_file(tmp_path) == ()


def test_examples_are_one_string_tensor_with_their_count(tmp_path: Path) -> None:
    classify, regress = pb.PredictionLog(), pb.PredictionLog()
    classify.classify_log.request.model_spec.signature_name = "digits"
    classify.classify_log.request.input.example_list.examples.extend([pb.Example()] * 3)
    examples = regress.regress_log.request.input.example_list_with_context.examples
    examples.extend([pb.Example()] * 2)
    assert read_logs(tmp_path, classify, regress) == (
        WarmUpRecord("classify", "digits", {"inputs": TensorSpec("inputs", "string", (3,))}),
        WarmUpRecord(
            "regress", "serving_default", {"inputs": TensorSpec("inputs", "string", (2,))}
        ),
    )


def test_all_signatures_of_a_multi_inference_are_named(tmp_path: Path) -> None:
    log = pb.PredictionLog()
    for name in ("classify_it", ""):
        log.multi_inference_log.request.tasks.add().model_spec.signature_name = name
    (record,) = read_logs(tmp_path, log)
    assert (record.kind, record.signature_name) == (
        "multi_inference",
        "classify_it, serving_default",
    )


def test_session_run_and_stream_have_their_inputs(tmp_path: Path) -> None:
    run, stream = pb.PredictionLog(), pb.PredictionLog()
    run.session_run_log.request.feed.add(name="x:0").tensor.dtype = saved_model_pb2.DT_FLOAT
    stream.predict_streamed_log.request.add().inputs["x"].dtype = saved_model_pb2.DT_INT32
    ran, streamed = read_logs(tmp_path, run, stream)
    assert ran == WarmUpRecord("session_run", "", {"x:0": TensorSpec("x:0", "float32", ())})
    assert streamed.inputs == {"x": TensorSpec("x", "int32", ())}


def test_record_without_a_kind_is_unknown(tmp_path: Path) -> None:
    assert read_logs(tmp_path, pb.PredictionLog()) == (WarmUpRecord("unknown", "", {}),)


def test_damaged_record_is_an_error_that_names_the_file_and_the_record(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(tf_records(b"first", b"second")[:-1])
    with pytest.raises(DamagedSavedModel) as error:
        list(warm_up_file.read_warm_up_records(path))
    assert str(error.value) == (
        f"record 1 of {path} is damaged: the file ends 1 bytes too early. Export the model again, "
        f"or remove the file to serve without warm-up."
    )


def test_record_that_is_no_prediction_log_is_an_error(tmp_path: Path) -> None:
    path = saved_models.copy_of_words(tmp_path / "1") / warm_up_file.PATH
    path.write_bytes(tf_records(b"no message"))
    with pytest.raises(DamagedSavedModel, match="record 0 .* is no PredictionLog"):
        warm_up_file.read_warm_up_file(tmp_path / "1")


def test_directory_in_place_of_the_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / warm_up_file.PATH).mkdir(parents=True)
    with pytest.raises(DamagedSavedModel, match="tf_serving_warmup_requests cannot be read"):
        warm_up_file.read_warm_up_file(tmp_path)
