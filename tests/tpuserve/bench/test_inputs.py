from pathlib import Path

import numpy as np
import pytest

from tpuserve.bench import inputs
from tpuserve.client.apis import tensor_proto
from tpuserve.errors import InvalidInput
from tpuserve.proto import prediction_service_pb2 as pb
from tpuserve.saved_model.signature import Signature, TensorSpec
from tpuserve.saved_model.tfrecord import frame_record

SIGNATURE = Signature(
    {"x": TensorSpec("x:0", "float32", (None, 2)), "name": TensorSpec("n:0", "string", (None,))}, {}
)


def test_random_inputs_have_the_dtypes_and_shapes_of_the_signature() -> None:
    first, *others = inputs.random_inputs(SIGNATURE, 3, {})
    assert first.inputs["x"].dtype == np.float32
    assert first.inputs["x"].shape == (3, 2)
    assert first.inputs["name"].shape == (3,)
    assert all(isinstance(name, bytes) for name in first.inputs["name"])
    assert len(others) == inputs.NUM_RANDOM - 1
    assert not np.array_equal(first.inputs["x"], others[0].inputs["x"])
    again = inputs.random_inputs(SIGNATURE, 3, {})[0]
    np.testing.assert_array_equal(first.inputs["x"], again.inputs["x"])


def test_a_shape_replaces_that_of_the_signature() -> None:
    unknown = Signature({"x": TensorSpec("x:0", "int32", None)}, {})
    assert inputs.random_inputs(unknown, 4, {})[0].inputs["x"].shape == (4,)
    x = inputs.random_inputs(unknown, 4, {"x": (2, 5)})[0].inputs["x"]
    assert x.shape == (2, 5)
    assert set(x.ravel().tolist()) == {0, 1}
    with pytest.raises(InvalidInput, match="input 'y'; the signature has x. Name one"):
        inputs.random_inputs(unknown, 4, {"y": (1,)})


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.json", '{"inputs": {"x": [[1, 2]]}}', [[[1, 2]]]),
        ("a.json", '{"x": [[1, 2]]}', [[[1, 2]]]),
        ("a.jsonl", '{"x": [[1, 2]]}\n\n{"x": [[3, 4]]}\n', [[[1, 2]], [[3, 4]]]),
    ],
)
def test_json_files_have_requests(
    tmp_path: Path, name: str, text: str, expected: list[list[list[int]]]
) -> None:
    (tmp_path / name).write_text(text)
    requests = inputs.read_file(tmp_path / name, SIGNATURE)
    assert [request.inputs["x"].tolist() for request in requests] == expected
    assert requests[0].inputs["x"].dtype == np.float32


def test_a_b64_object_is_a_string_of_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"inputs": {"name": [{"b64": "AP8="}, "red"]}}')
    (request,) = inputs.read_file(tmp_path / "a.json", SIGNATURE)
    assert request.inputs["name"].tolist() == [b"\0\xff", b"red"]
    (tmp_path / "a.json").write_text('{"name": [{"b64": "*"}]}')
    with pytest.raises(InvalidInput, match="a.json has no requests: it has a b64 that is no base"):
        inputs.read_file(tmp_path / "a.json", SIGNATURE)


def test_an_npz_file_is_a_request(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((1, 2), np.int8))
    (request,) = inputs.read_file(tmp_path / "a.npz", SIGNATURE)
    assert request.inputs["x"].dtype == np.int8


def write_damaged_npz(path: Path, damage: str) -> None:
    """Write a truncated .npz file, an empty one, or an .npy file with the name of one."""
    if damage == "npy":
        with path.open("wb") as file:
            np.save(file, np.ones(2))
        return
    np.savez(path, x=np.ones(2))
    path.write_bytes(path.read_bytes()[:-20] if damage == "truncated" else b"")


@pytest.mark.parametrize("damage", ["truncated", "empty", "npy"])
def test_a_damaged_npz_file_is_refused(tmp_path: Path, damage: str) -> None:
    write_damaged_npz(tmp_path / "a.npz", damage)
    with pytest.raises(InvalidInput, match="a.npz has no requests: it is .*Give a .npz"):
        inputs.read_file(tmp_path / "a.npz", SIGNATURE)


@pytest.mark.parametrize(
    "text", ['{"inputs": [1, 2]}', '{"inputs": {"inputs": [1, 2]}}', "an .npz file"]
)
def test_an_input_may_have_the_name_inputs(tmp_path: Path, text: str) -> None:
    signature = Signature({"inputs": TensorSpec("x:0", "float32", (None,))}, {})
    path = tmp_path / ("a.json" if text.startswith("{") else "a.npz")
    if path.suffix == ".npz":
        np.savez(path, inputs=np.array([1, 2], np.float32))
    else:
        path.write_text(text)
    (request,) = inputs.read_file(path, signature)
    assert {name: array.tolist() for name, array in request.inputs.items()} == {"inputs": [1, 2]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{"),
        ("a.json", '{"inputs": [[1, 2]]}'),
        ("a.json", "[1]"),
        ("a.json", "{}"),
        ("a.json", "[" * 100_000),
        ("a.jsonl", ""),
        ("a.npz", "no zip"),
    ],
)
def test_a_file_without_requests_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=f"{name} has no requests: .*Give a .npz"):
        inputs.read_file(tmp_path / name, SIGNATURE)


def write_log(path: Path, *models: str) -> None:
    content = b""
    for position, model in enumerate(models):
        log = pb.PredictionLog()
        request = log.predict_log.request
        request.model_spec.name, request.model_spec.signature_name = model, "sign"
        array = np.array([position], np.float32)
        tensor_proto.write_array(request.inputs["x"], array, "x")
        content += frame_record(log.SerializeToString())
    path.write_bytes(content + frame_record(pb.PredictionLog().SerializeToString()))


def test_the_predict_requests_of_a_log_are_those_of_the_model(tmp_path: Path) -> None:
    write_log(tmp_path / "log", "half", "other", "half")
    requests = inputs.read_request_log(tmp_path / "log", "half")
    assert [request.inputs["x"].tolist() for request in requests] == [[0], [2]]
    assert [request.signature_name for request in requests] == ["sign", "sign"]


def test_a_log_without_requests_to_the_model_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "log", "other")
    with pytest.raises(InvalidInput, match="to model 'half'; it has a request of.*, model 'other'"):
        inputs.read_request_log(tmp_path / "log", "half")
    (tmp_path / "log").write_bytes(b"12345")
    with pytest.raises(InvalidInput, match="is no request log: record 0: the file ends"):
        inputs.read_request_log(tmp_path / "log", "half")
