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


def read(directory: Path, *logs: pb.PredictionLog) -> tuple[WarmUpRecord, ...]:
    path = directory / warm_up_file.PATH
    path.parent.mkdir()
    path.write_bytes(tf_records(*(each.SerializeToString() for each in logs)))
    return warm_up_file.read_warm_up_file(directory)


def test_what_tensorflow_wrote_is_read() -> None:
    expected = [
        WarmUpRecord("predict", "serving_default", {"words": TensorSpec("words", "string", (n, 5))})
        for n in (1, 4)
    ]
    assert warm_up_file.read_warm_up_file(WORDS) == tuple(expected)


def test_records_come_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(tf_records(b"one", b"", b"three"))
    assert list(warm_up_file.records(tmp_path / "file")) == [b"one", b"", b"three"]


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert list(warm_up_file.records(tmp_path / "file")) == []


def test_without_a_file_there_are_no_requests(tmp_path: Path) -> None:
    assert warm_up_file.read_warm_up_file(tmp_path) == ()


def test_examples_are_one_string_tensor_of_their_number(tmp_path: Path) -> None:
    classify, regress = pb.PredictionLog(), pb.PredictionLog()
    classify.classify_log.request.model_spec.signature_name = "digits"
    classify.classify_log.request.input.example_list.examples.extend([pb.Example()] * 3)
    examples = regress.regress_log.request.input.example_list_with_context.examples
    examples.extend([pb.Example()] * 2)
    assert read(tmp_path, classify, regress) == (
        WarmUpRecord("classify", "digits", {"inputs": TensorSpec("inputs", "string", (3,))}),
        WarmUpRecord(
            "regress", "serving_default", {"inputs": TensorSpec("inputs", "string", (2,))}
        ),
    )


def test_all_signatures_of_a_multi_inference_are_named(tmp_path: Path) -> None:
    log = pb.PredictionLog()
    for name in ("classify_it", ""):
        log.multi_inference_log.request.tasks.add().model_spec.signature_name = name
    (found,) = read(tmp_path, log)
    assert (found.kind, found.signature_name) == ("multi_inference", "classify_it, serving_default")


def test_a_session_run_and_a_stream_show_what_they_send(tmp_path: Path) -> None:
    run, stream = pb.PredictionLog(), pb.PredictionLog()
    run.session_run_log.request.feed.add(name="x:0").tensor.dtype = saved_model_pb2.DT_FLOAT
    stream.predict_streamed_log.request.add().inputs["x"].dtype = saved_model_pb2.DT_INT32
    ran, streamed = read(tmp_path, run, stream)
    assert ran == WarmUpRecord("session_run", "", {"x:0": TensorSpec("x:0", "float32", ())})
    assert streamed.inputs == {"x": TensorSpec("x", "int32", ())}


def test_a_record_that_says_no_kind_is_unknown(tmp_path: Path) -> None:
    assert read(tmp_path, pb.PredictionLog()) == (WarmUpRecord("unknown", "", {}),)


def changed(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


RECORD = tf_records(b"first", b"second")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (RECORD[:-1], "record 1 .* ends 1 bytes too early"),
        (RECORD[:25], "record 1 .* ends within its length"),
        (changed(RECORD, 0), "record 0 .* its length has a wrong checksum"),
        (changed(RECORD, 13), "record 0 .* its content has a wrong checksum"),
        (changed(RECORD, len(RECORD) - 1), "record 1 .* its content has a wrong checksum"),
        (b"these are no records at all", "record 0 .* its length has a wrong checksum"),
    ],
)
def test_damage_is_an_error_that_names_the_record(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DamagedSavedModel, match=why):
        list(warm_up_file.records(tmp_path / "file"))


def test_a_record_of_another_kind_is_named(tmp_path: Path) -> None:
    path = saved_models.copy_of_words(tmp_path / "1") / warm_up_file.PATH
    path.write_bytes(tf_records(b"no message"))
    with pytest.raises(DamagedSavedModel, match="record 0 .* is no PredictionLog"):
        warm_up_file.read_warm_up_file(tmp_path / "1")


def test_a_directory_in_its_place_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / warm_up_file.PATH).mkdir(parents=True)
    with pytest.raises(DamagedSavedModel, match="tf_serving_warmup_requests cannot be read"):
        warm_up_file.read_warm_up_file(tmp_path)
