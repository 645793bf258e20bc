"""The Open Inference Protocol over gRPC: infer with typed and with raw contents."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import ml_dtypes
import numpy as np
import pytest

from server.dataplane import DataPlane
from server.models.manager import Manager
from server.servables.servable import Array
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeLoader, FakeModel, spec
from tests.server.frontends.grpc import clients
from tpuserve.saved_model.signature import Signature

Call: TypeAlias = Callable[..., Any]

# 1.0 and 2.0, and half of each plus two, as little-endian float32.
X_BYTES, Y_BYTES = bytes.fromhex("0000803f 00000040"), bytes.fromhex("00002040 00004040")


class EchoModel(FakeModel):
    """Returns what it is given, for each datatype in the test."""

    signatures = {
        **FakeModel.signatures,
        **{
            dtype: Signature({"x": spec(dtype)}, {"y": spec(dtype)})
            for dtype in ("bool", "uint8", "uint16", "int8", "int64", "uint64", "float64")
            + ("float16", "bfloat16", "string")
        },
    }

    def _run(self, signature_name: str, inputs: Any) -> dict[str, Array]:
        if signature_name in FakeModel.signatures:
            return super()._run(signature_name, inputs)
        return {"y": inputs["x"]}


@pytest.fixture(scope="module")
def call() -> Iterator[Call]:
    """Return a function that calls a method with the fields of its request."""
    from tpuserve.proto.open_inference import message_type

    loader = FakeLoader()
    loader.model_type = EchoModel
    manager = Manager(loader)
    aspire(manager, "half", {3: Path("/models/half/3")})
    with clients.serving(DataPlane(manager)) as server, clients.connect(server.address) as client:

        def call_method(method: str, request: Any = None, **fields: Any) -> Any:
            request = message_type(f"{method}Request")(**fields) if request is None else request
            stub = client.channel.unary_unary(
                f"/inference.GRPCInferenceService/{method}",
                type(request).SerializeToString if not isinstance(request, bytes) else None,
                message_type(f"{method}Response").FromString,
            )
            return stub(request, timeout=10)

        yield call_method
    manager.close(1)


def infer(call: Call, *inputs: dict[str, Any], **fields: Any) -> Any:
    signature = fields.pop("signature", "")
    if signature:
        fields["parameters"] = {"signature_name": {"string_param": signature}}
    return call("ModelInfer", **{"model_name": "half", "inputs": inputs, **fields})


def tensor(name: str, datatype: str, shape: list[int], **contents: Any) -> dict[str, Any]:
    fields = {"name": name, "datatype": datatype, "shape": shape}
    return {**fields, "contents": contents} if contents else fields


def test_typed_contents_are_answered_by_typed_contents(call: Call) -> None:
    response = infer(call, tensor("x", "FP32", [2], fp32_contents=[1, 2]), id="7")
    assert (response.model_name, response.model_version, response.id) == ("half", "3", "7")
    (output,) = response.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("y", "FP32", [2])
    assert list(output.contents.fp32_contents) == [2.5, 3.0]
    assert not response.raw_output_contents


def test_raw_contents_are_answered_by_raw_contents(call: Call) -> None:
    response = infer(call, tensor("x", "FP32", [2]), raw_input_contents=[X_BYTES])
    (output,) = response.outputs
    assert not output.HasField("contents")
    assert list(response.raw_output_contents) == [Y_BYTES]


def test_signature_and_outputs_are_chosen(call: Call) -> None:
    response = infer(
        call,
        tensor("a", "INT32", [1], int_contents=[5]),
        tensor("b", "INT32", [1], int_contents=[2]),
        signature="two",
        outputs=[{"name": "difference"}],
    )
    (output,) = response.outputs
    assert (output.name, list(output.contents.int_contents)) == ("difference", [3])


@pytest.mark.parametrize(
    ("dtype", "datatype", "field", "values"),
    [
        ("bool", "BOOL", "bool_contents", [True, False]),
        ("uint8", "UINT8", "uint_contents", [0, 255]),
        ("uint16", "UINT16", "uint_contents", [0, 65535]),
        ("int8", "INT8", "int_contents", [-128, 127]),
        ("int64", "INT64", "int64_contents", [-(2**63), 2**63 - 1]),
        ("uint64", "UINT64", "uint64_contents", [0, 2**64 - 1]),
        ("float64", "FP64", "fp64_contents", [0.1, -0.1]),
        ("string", "BYTES", "bytes_contents", [b"\xff", b""]),
    ],
)
def test_each_datatype_is_echoed(
    call: Call, dtype: str, datatype: str, field: str, values: list[Any]
) -> None:
    x = tensor("x", datatype, [2], **{field: values})
    (output,) = infer(call, x, signature=dtype).outputs
    assert output.datatype == datatype
    assert list(getattr(output.contents, field)) == values


@pytest.mark.parametrize(
    ("dtype", "datatype", "numpy_type"),
    [("float16", "FP16", np.float16), ("bfloat16", "BF16", ml_dtypes.bfloat16)],
)
def test_half_precision_is_raw(call: Call, dtype: str, datatype: str, numpy_type: Any) -> None:
    raw = np.array([1.5, -2], numpy_type).tobytes()
    x = tensor("x", datatype, [2])
    response = infer(call, x, raw_input_contents=[raw], signature=dtype)
    assert list(response.raw_output_contents) == [raw]


def test_large_request_is_answered(call: Call) -> None:
    x = np.arange(1 << 19, dtype=np.float32)  # Two megabytes: more than a small message has.
    response = infer(call, tensor("x", "FP32", [1 << 19]), raw_input_contents=[x.tobytes()])
    y = np.frombuffer(response.raw_output_contents[0], np.float32)
    assert np.array_equal(y, x / 2 + 2)


X = tensor("x", "FP32", [2])


@pytest.mark.parametrize(
    ("inputs", "fields", "code", "text"),
    [
        ([X], {"model_name": ""}, "INVALID_ARGUMENT", "names no model"),
        ([X], {"model_name": "other"}, "NOT_FOUND", "other"),
        ([X], {"model_version": "9"}, "NOT_FOUND", "9"),
        ([X], {"model_version": "a"}, "INVALID_ARGUMENT", "the version is 'a'"),
        ([X], {"signature": "no"}, "FAILED_PRECONDITION", '"no" not found'),
        (
            [X],
            {"outputs": [{"name": "z"}], "raw_input_contents": [X_BYTES]},
            "INVALID_ARGUMENT",
            "not found in signature: z",
        ),
        ([X], {}, "INVALID_ARGUMENT", "has 0 elements in fp32_contents"),
        ([X], {"raw_input_contents": [b"123"]}, "INVALID_ARGUMENT", "takes 8"),
        ([X], {"raw_input_contents": [X_BYTES, b""]}, "INVALID_ARGUMENT", "2 elements for 1"),
        ([X, X], {"raw_input_contents": [X_BYTES] * 2}, "INVALID_ARGUMENT", "given twice"),
        (
            [tensor("x", "FP32", [2], fp32_contents=[1, 2])],
            {"raw_input_contents": [X_BYTES]},
            "INVALID_ARGUMENT",
            "Send one of them",
        ),
        (
            [tensor("x", "FP64", [1], fp64_contents=[1])],
            {},
            "INVALID_ARGUMENT",
            "expects float32 [?]",
        ),
        ([tensor("x", "NO", [1])], {}, "INVALID_ARGUMENT", "datatype 'NO'"),
        (
            [tensor("x", "FP32", [1, 1], fp32_contents=[1])],
            {},
            "INVALID_ARGUMENT",
            "expects float32 [?]",
        ),
        ([tensor("x", "FP32", [-2])], {}, "INVALID_ARGUMENT", "0 or more"),
        ([tensor("x", "FP32", [2**62] * 2)], {}, "INVALID_ARGUMENT", "below 2^60"),
        ([tensor("x", "FP32", [0, 2**62])], {}, "INVALID_ARGUMENT", "below 2^60"),
        ([tensor("z", "FP32", [1], fp32_contents=[1])], {}, "INVALID_ARGUMENT", "z"),
        (
            [tensor("x", "UINT8", [1], uint_contents=[256])],
            {"signature": "uint8"},
            "INVALID_ARGUMENT",
            "256, which is no UINT8",
        ),
        (
            [tensor("x", "BF16", [1], fp32_contents=[1])],
            {"signature": "bfloat16"},
            "INVALID_ARGUMENT",
            "raw_input_contents",
        ),
        (
            [X],
            {"parameters": {"signature_name": {"int64_param": 5}}},
            "INVALID_ARGUMENT",
            "no string_param",
        ),
        (
            [{**X, "parameters": {"shared_memory_region": {"string_param": "r"}}}],
            {},
            "INVALID_ARGUMENT",
            "in shared memory",
        ),
    ],
)
def test_bad_request_is_refused_in_one_line(
    call: Call, inputs: list[Any], fields: dict[str, Any], code: str, text: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        infer(call, *inputs, **fields)
    assert clients.status_and_text(caught)[0] == code
    message = clients.status_and_text(caught)[1]
    assert text in message
    assert "\n" not in message


def test_invalid_bytes_are_refused(call: Call) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call("ModelInfer", b"\xff\xff")
    assert clients.status_and_text(caught) == (
        "INVALID_ARGUMENT",
        "the request cannot be parsed as a inference.ModelInferRequest",
    )


def test_server_and_models_are_described(call: Call) -> None:
    assert call("ServerLive").live
    assert call("ServerReady").ready
    assert call("ServerMetadata").name == "tpuserve"
    assert call("ModelReady", name="half").ready
    assert call("ModelReady", name="half", version="3").ready
    assert not call("ModelReady", name="half", version="9").ready
    assert not call("ModelReady", name="other").ready
    metadata = call("ModelMetadata", name="half")
    assert list(metadata.versions) == ["3"]
    assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in metadata.inputs] == [
        ("x", "FP32", [-1])
    ]


def test_tritons_extensions_are_answered(call: Call) -> None:
    config = call("ModelConfig", name="half").config
    assert (config.name, config.max_batch_size) == ("half", 0)
    assert [(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in config.input] == [
        ("x", 11, [-1])  # TYPE_FP32
    ]
    before = call("ModelStatistics", name="half", version="3").model_stats[0].inference_count
    infer(call, tensor("x", "FP32", [2], fp32_contents=[1, 2]))
    (statistics,) = call("ModelStatistics").model_stats
    assert statistics.inference_count == before + 2
    (size,) = [size for size in statistics.batch_stats if size.batch_size == 2]
    assert size.compute_infer.count == size.compute_output.count > 0
    assert min(size.compute_input.ns, size.compute_infer.ns, size.compute_output.ns) > 0
    (entry,) = call("RepositoryIndex", ready=True).models
    assert (entry.name, entry.version, entry.state) == ("half", "3", "READY")


@pytest.mark.parametrize("verb", ["Load", "Unload"])
def test_models_are_not_controlled_without_the_flag(call: Call, verb: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(f"RepositoryModel{verb}", model_name="half")
    assert clients.status_and_text(caught)[0] == "PERMISSION_DENIED"
