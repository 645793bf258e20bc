"""Messages, decompressed messages and tensors count in the memory budget of all requests."""

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

from server.admission.cancellation import Cancellation
from server.admission.memory_budget import MemoryBudget
from server.dataplane import DataPlane
from server.frontends.grpc import compression
from server.frontends.grpc.services import parsing
from tests.server.fakes import FakeLoader
from tests.server.frontends.grpc import clients
from tests.server.frontends.grpc.clients import predict_request
from tpuserve.errors import Cancelled, MemoryBudgetExceeded, RequestTooLarge

MB = 1 << 20
COMPRESSIONS = (grpc.Compression.Gzip, grpc.Compression.Deflate)
X = np.array([1, 2, 5], np.float32)


def content_request(num_bytes: int) -> Any:
    """Return a request whose tensor has `num_bytes` bytes, and compresses to a thousandth."""
    return predict_request(x=np.ones(num_bytes // 4, np.float32))


@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize("allow_direct_polling", [True, False])
def test_compressed_message_is_bounded_after_decompression(
    dataplane: DataPlane, kind: grpc.Compression, allow_direct_polling: bool
) -> None:
    with (
        clients.serving(
            dataplane, max_request_bytes=MB, allow_direct_polling=allow_direct_polling
        ) as server,
        clients.connect(server.address) as client,
    ):
        predict = client.prediction.Predict
        assert len(predict(content_request(MB // 2), 10, compression=kind).outputs["y"].float_val)
        with pytest.raises(grpc.RpcError) as caught:
            predict(content_request(8 * MB), 10, compression=kind)
        code, text = clients.status_and_text(caught)
        assert code == "RESOURCE_EXHAUSTED"
        assert "after decompression (--max_request_bytes)" in text


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_compressed_message_counts_in_the_budget(
    dataplane: DataPlane, kind: grpc.Compression
) -> None:
    budget = MemoryBudget(16 * MB)
    with (
        clients.serving(dataplane, memory_budget=budget) as server,
        clients.connect(server.address) as client,
    ):
        for size, is_answered in ((MB, True), (64 * MB, False), (MB, True)):
            call = client.prediction.Predict.future(content_request(size), 30, compression=kind)
            code = grpc.StatusCode.OK if is_answered else grpc.StatusCode.RESOURCE_EXHAUSTED
            assert call.code() == code
    assert budget.reserved_bytes == 0


def many_strings(request: Any) -> None:
    request.inputs["x"].dtype = 7
    request.inputs["x"].string_val.extend([b""] * 200_000)


def wide_shape(request: Any) -> None:
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_shape.dim.add(size=15 * MB // 4)


def many_dimensions(request: Any) -> None:
    for _ in range(500_000):
        request.inputs["x"].tensor_shape.dim.add()


@pytest.mark.parametrize("fill", [many_strings, wide_shape, many_dimensions])
@pytest.mark.parametrize("allow_direct_polling", [True, False])
def test_small_message_that_needs_much_memory_is_refused(
    dataplane: DataPlane,
    loader: FakeLoader,
    fill: Callable[[Any], None],
    allow_direct_polling: bool,
) -> None:
    budget, request = MemoryBudget(8 * MB), predict_request()
    fill(request)
    assert request.ByteSize() < 2 * MB
    with (
        clients.serving(
            dataplane, memory_budget=budget, allow_direct_polling=allow_direct_polling
        ) as server,
        clients.connect(server.address) as client,
    ):
        with pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"):
            client.prediction.Predict(request, 30)
        assert not loader.models[3].has_begun.is_set()
        assert list(client.predict(x=X).outputs["y"].float_val) == [2.5, 3.0, 4.5]
    assert budget.reserved_bytes == 0


@pytest.mark.parametrize("dtype", [1, 7, 9])
def test_values_are_repeated_up_to_a_limit(dataplane: DataPlane, dtype: int) -> None:
    request = predict_request()
    request.inputs["x"].dtype = dtype
    request.inputs["x"].tensor_shape.dim.add(size=20 * MB)
    with clients.serving(dataplane) as server, clients.connect(server.address) as client:
        with pytest.raises(grpc.RpcError) as caught:
            client.prediction.Predict(request, 30)
        assert clients.status_and_text(caught) == ("INVALID_ARGUMENT", "tensor parsing error: x")


def test_compressed_call_that_needs_no_admission_gives_its_memory_back(
    dataplane: DataPlane,
) -> None:
    budget = MemoryBudget(8 * MB)
    # An unknown field of 1 MB, which every message may have.
    message = b"\x7a\x80\x80\x40" + bytes(MB)
    with (
        clients.serving(
            dataplane, memory_budget=budget, enable_grpc_healthcheck_service=True
        ) as server,
        clients.connect(server.address) as client,
    ):
        check = client.channel.unary_unary("/grpc.health.v1.Health/Check")
        for _ in range(10):
            assert check(message, timeout=10, compression=grpc.Compression.Gzip) == b"\x08\x01"
    assert budget.reserved_bytes == 0


@pytest.mark.parametrize("allow_direct_polling", [True, False])
def test_outputs_count_in_the_budget(dataplane: DataPlane, allow_direct_polling: bool) -> None:
    budget = MemoryBudget(16 * MB)
    with (
        clients.serving(
            dataplane, memory_budget=budget, allow_direct_polling=allow_direct_polling
        ) as server,
        clients.connect(server.address) as client,
    ):
        # A request takes five times the size of its tensor: for the message, the input, the output,
        # the chunks of the response, and the joined response.
        for size, is_answered in ((3 * MB, True), (4 * MB, False), (3 * MB, True)):
            call = client.prediction.Predict.future(content_request(size), 30)
            code = grpc.StatusCode.OK if is_answered else grpc.StatusCode.RESOURCE_EXHAUSTED
            assert call.code() == code
    assert budget.reserved_bytes == 0


def test_calls_in_flight_share_the_budget(
    dataplane: DataPlane, loader: FakeLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, request = loader.models[3], predict_request(x=np.ones(MB // 4, np.float32))
    # Return a small output, so that only the inputs count.
    monkeypatch.setattr(model, "_run", lambda name, inputs: {"y": inputs["x"][:1]})
    model.gate.clear()
    with (
        clients.serving(dataplane, memory_budget=MemoryBudget(3 * MB)) as server,
        clients.connect(server.address) as client,
    ):
        first = client.prediction.Predict.future(request, 30)
        assert model.has_begun.wait(10)
        with pytest.raises(grpc.RpcError) as caught:
            client.prediction.Predict(request, 30)
        code, text = clients.status_and_text(caught)
        assert code == "RESOURCE_EXHAUSTED"
        assert "(--max_request_memory_bytes)" in text
        model.gate.set()
        assert first.exception() is None
        assert client.prediction.Predict(request, 30).outputs


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_decompression_stops_at_each_limit(compress: Callable[[bytes], bytes]) -> None:
    message = compress(b"\n" + bytes(20 * MB))
    budget = MemoryBudget(64 * MB)
    with budget.reserve() as memory:
        assert (
            len(compression.decompress(message, 32 * MB, memory, Cancellation().raise_if_cancelled))
            == 20 * MB + 1
        )
        assert memory.num_bytes == 2 * (20 * MB + 1)
    with budget.reserve() as memory, pytest.raises(RequestTooLarge):
        compression.decompress(message, 2 * MB, memory, Cancellation().raise_if_cancelled)
    with budget.reserve(60 * MB) as memory, MemoryBudget(8 * MB).reserve(MB) as small:
        with pytest.raises(RequestTooLarge):
            compression.decompress(message, 32 * MB, small, Cancellation().raise_if_cancelled)
        with budget.reserve() as other, pytest.raises(MemoryBudgetExceeded):
            compression.decompress(message, 32 * MB, other, Cancellation().raise_if_cancelled)
        del memory
    cancelled = Cancellation()
    cancelled.cancel()
    with budget.reserve() as memory, pytest.raises(Cancelled):
        compression.decompress(message, 32 * MB, memory, cancelled.raise_if_cancelled)
    assert budget.reserved_bytes == 0


@pytest.mark.parametrize("message", [b"", b"\n\0", b"\x1f\x8b\x08 no", b"x\x9c no"])
def test_other_messages_are_left_as_they_are(message: bytes) -> None:
    with MemoryBudget(4 * MB).reserve() as memory:
        assert (
            compression.decompress(message, MB, memory, Cancellation().raise_if_cancelled)
            == message
        )
        assert memory.num_bytes == 0


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_zlib_gets_each_byte_of_a_message_about_once(
    compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"\n" + np.random.default_rng(0).bytes(8 * MB)  # Random bytes, which do not compress.
    message = compress(content)
    create, passed = zlib.decompressobj, 0

    class CountingDecompressor:
        def __init__(self, window_bits: int) -> None:
            self._real = create(window_bits)

        def decompress(self, data: bytes, max_bytes: int) -> bytes:
            nonlocal passed
            passed += len(data)
            return self._real.decompress(data, max_bytes)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    monkeypatch.setattr(zlib, "decompressobj", CountingDecompressor)
    with MemoryBudget(64 * MB).reserve() as memory:
        assert (
            compression.decompress(message, 32 * MB, memory, Cancellation().raise_if_cancelled)
            == content
        )
    assert len(message) <= passed < 1.1 * len(message)


@pytest.mark.parametrize("kind", [None, *COMPRESSIONS])
def test_large_tensor_is_never_parsed_by_protobuf(
    dataplane: DataPlane, kind: grpc.Compression | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    parse_message = parsing.parse_message

    def parse_and_note_size(message_type: Any, raw: bytes) -> Any:
        parsed.append(len(raw))
        return parse_message(message_type, raw)

    monkeypatch.setattr(parsing, "parse_message", parse_and_note_size)
    with clients.serving(dataplane) as server, clients.connect(server.address) as client:
        for size in (4, 2 * MB):
            response = client.prediction.Predict(content_request(size), 30, compression=kind)
            assert set(response.outputs["y"].float_val) == {2.5}
    assert len(parsed) == 1
    assert parsed[0] < 100
