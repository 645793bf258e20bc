"""No reply of a server makes a client allocate, compute or wait without an end."""

import asyncio
import gzip
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from tests.server.certificates import Authority
from tests.tpuserve.client.reply_servers import Answer, over_grpc, over_http
from tpuserve.client import AsyncClient, Client
from tpuserve.client.apis import tensor_proto
from tpuserve.errors import DeadlineExceeded, InvalidReply, InvalidSetting
from tpuserve.proto import prediction_service_pb2
from tpuserve.proto.open_inference import message_type

X = {"x": np.ones(3, np.float32)}
GIBIBYTE = 1 << 30
# The product of so many dimensions takes long to compute.
MANY_DIMENSIONS = [2**62] * 100_000
Api = Literal["v1", "v2"]


def tensor(shape: list[int], **fields: Any) -> prediction_service_pb2.TensorProto:
    """Return a TensorProto of float32."""
    proto = prediction_service_pb2.TensorProto(dtype=1, **fields)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


def predict(url: str, api: Api, is_async: bool = False, **options: Any) -> dict[str, Any]:
    async def predict_async() -> dict[str, Any]:
        async with AsyncClient(url, api=api, attempts=1, **options) as client:
            return await client.predict("half", X)

    if is_async:
        return asyncio.run(predict_async())
    with Client(url, api=api, attempts=1, **options) as client:
        return client.predict("half", X)


@contextmanager
def dripping(first: bytes, byte: bytes, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Send the first bytes, and then a byte every 50 ms for ever; yield the host and port."""
    is_over = threading.Event()

    def serve() -> None:
        connection, _ = listening.accept()
        try:
            if tls is not None:
                connection = tls.wrap_socket(connection, server_side=True)
            with connection:
                connection.sendall(first)
                while not is_over.wait(0.05):
                    connection.sendall(byte)
        except OSError:
            pass  # The client has left.

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join()


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    "first",
    [b"HTTP/1.1 200 OK\r\nx-name: ", b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n"],
    ids=["headers", "body"],
)
def test_server_that_drips_ends_the_call_at_its_deadline(
    first: bytes, has_tls: bool, is_async: bool, tmp_path: Path
) -> None:
    tls, options = None, {}
    scheme = "https" if has_tls else "http"
    if has_tls:
        authority = Authority()
        identity = authority.identity()
        (tmp_path / "server.pem").write_bytes(identity.key + identity.certificate)
        (tmp_path / "ca.pem").write_bytes(authority.certificate)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(tmp_path / "server.pem")
        options = {"ca_file": str(tmp_path / "ca.pem")}
    with dripping(first, b"x", tls) as address, pytest.raises(DeadlineExceeded) as caught:
        predict(f"{scheme}://{address}", "v2", is_async, timeout_s=0.5, **options)
    assert str(caught.value).startswith("the server has not answered within 0.5 s. ")


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_large_body_is_refused(encoding: str, is_async: bool) -> None:
    body = b"[" + b" " * 100_000 + b"]"
    answer = Answer(200, body)
    if encoding:
        answer = Answer(200, gzip.compress(body), {"content-encoding": encoding})
    with over_http(answer) as server:
        with pytest.raises(InvalidReply, match="has more than 100001 bytes. .* max_reply_bytes"):
            predict(server.url, "v2", is_async, max_reply_bytes=100_001)
        with pytest.raises(InvalidReply, match="its outputs have another form"):
            predict(server.url, "v2", is_async, max_reply_bytes=100_002)


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
def test_large_message_is_refused(is_async: bool) -> None:
    with over_grpc(bytes(1000)) as handler:
        with pytest.raises(InvalidReply, match="has more than 999 bytes. .* max_reply_bytes"):
            predict(handler.url, "v1", is_async, max_reply_bytes=999)
        assert len(handler.calls) == 1
        with pytest.raises(InvalidReply, match="is no PredictResponse"):
            predict(handler.url, "v1", is_async, max_reply_bytes=2**40)


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br", "zstd"])
def test_encodings_that_expand_bytes_to_gigabytes_are_refused(encoding: str) -> None:
    message = f"has the content encoding '{encoding}'"
    with (
        over_http(Answer(200, b"", {"content-encoding": encoding})) as server,
        pytest.raises(InvalidReply, match=message),
    ):
        predict(server.url, "v2")


def test_largest_reply_is_a_positive_number() -> None:
    with pytest.raises(InvalidSetting, match="max_reply_bytes is 0. Give 1 or more"):
        Client("http://localhost", max_reply_bytes=0)


@pytest.mark.parametrize("values", [{}, {"string_val": [b"a"]}], ids=["zeros", "strings"])
@pytest.mark.parametrize(
    "shape",
    [[2**40], [2**62, 2**62], [0, 2**62, 2**62], [-4, -1], MANY_DIMENSIONS],
    ids=["terabytes", "product", "empty", "negative", "dimensions"],
)
def test_small_tensor_of_a_large_shape_is_refused(
    shape: list[int], values: dict[str, list[bytes]]
) -> None:
    response = prediction_service_pb2.PredictResponse()
    response.outputs["y"].CopyFrom(tensor(shape, **values))
    if values:
        response.outputs["y"].dtype = 7
    with over_grpc(response.SerializeToString()) as handler:
        with pytest.raises(InvalidReply, match="tensor 'y' do not fill the shape") as caught:
            predict(handler.url, "v1")
        assert len(str(caught.value)) < 2000


def test_outputs_repeat_values_up_to_a_gibibyte_together() -> None:
    # Two outputs of 3/4 GiB each; NumPy reserves the memory of zeros without using it.
    protos = {name: tensor([GIBIBYTE * 3 // 16]) for name in "yz"}
    assert tensor_proto.to_arrays({"y": protos["y"]})["y"].nbytes == GIBIBYTE * 3 // 4
    with pytest.raises(InvalidReply, match="'z' .* 0 values for 201326592 elements, and at most"):
        tensor_proto.to_arrays(protos)


@pytest.mark.parametrize(
    "shape",
    [[2**62, 4], [0, 2**62, 2**62], [-4, -1], MANY_DIMENSIONS],
    ids=["product", "empty", "negative", "dimensions"],
)
@pytest.mark.parametrize("has_raw", [False, True], ids=["fields", "raw"])
def test_open_inference_tensor_of_a_wrong_shape_is_refused_over_grpc(
    shape: list[int], has_raw: bool
) -> None:
    response = message_type("ModelInferResponse")()
    response.outputs.add(name="y", datatype="FP32", shape=shape)
    if has_raw:
        response.raw_output_contents.append(b"" if 0 in shape else bytes(16))
    with over_grpc(response.SerializeToString()) as handler:
        with pytest.raises(InvalidReply, match="output 'y' do not fill its shape") as caught:
            predict(handler.url, "v2")
        assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [([2**62, 4], [16]), (MANY_DIMENSIONS, [16]), ([4], [16, -16, 16]), ([0], [-16])],
    ids=["product", "dimensions", "backwards", "empty"],
)
def test_binary_tensor_of_a_wrong_shape_or_size_is_refused(
    shape: list[int], sizes: list[int]
) -> None:
    outputs = [
        {"name": "y", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": size}}
        for size in sizes
    ]
    document = json.dumps({"outputs": outputs}).encode()
    headers = {"inference-header-content-length": str(len(document))}
    answer = Answer(200, document + bytes(16), headers)
    with over_http(answer) as server, pytest.raises(InvalidReply):
        predict(server.url, "v2")


def test_header_length_of_thousands_of_digits_is_ignored() -> None:
    body = b'{"outputs":[{"name":"y","datatype":"FP32","shape":[2],"data":[1.5,2.5]}]}'
    headers = {"inference-header-content-length": "9" * 5000}
    with over_http(Answer(200, body, headers)) as server:
        assert predict(server.url, "v2")["y"].tolist() == [1.5, 2.5]


def test_infinite_version_is_refused() -> None:
    status = b'{"model_version_status": [{"version": Infinity, "state": "AVAILABLE"}]}'
    with (
        over_http(Answer(200, status)) as server,
        Client(server.url) as client,
        pytest.raises(InvalidReply, match="the status has another form"),
    ):
        client.versions("half")


@pytest.mark.parametrize(
    "tensor_info",
    [
        b'{"tensor_shape": {"dim": [{"size": Infinity}]}, "name": "x", "dtype": "DT_FLOAT"}',
        b'{"composite_tensor": {"components": []}, "dtype": "DT_INVALID"}',
        b'{"tensor_shape": {}, "dtype": "DT_FLOAT"}',
    ],
)
def test_malformed_tensors_in_metadata_are_refused(tensor_info: bytes) -> None:
    inputs = b'{"inputs": {"x": %s}}' % tensor_info
    metadata = b'{"metadata": {"signature_def": {"signature_def": {"a": %s}}}}' % inputs
    with (
        over_http(Answer(200, metadata)) as server,
        Client(server.url) as client,
        pytest.raises(InvalidReply, match="the metadata have another form"),
    ):
        client.signatures("half")


def test_unknown_state_and_odd_version_over_grpc_raise_no_error_of_python() -> None:
    response = prediction_service_pb2.GetModelStatusResponse()
    response.model_version_status.add(version=1, state=99)
    with over_grpc(response.SerializeToString()) as handler, Client(handler.url) as client:
        assert [status.state for status in client.versions("half")] == ["99"]
    index = message_type("RepositoryIndexResponse")()
    for version in ("\u00b2", "9" * 5000, "7"):
        index.models.add(name="half", version=version, state="READY")
    with (
        over_grpc(index.SerializeToString()) as handler,
        Client(handler.url, api="v2") as client,
    ):
        assert [status.version for status in client.versions("half")] == [7]
