"""A status has the same error class over HTTP and gRPC, and calls are repeated until a deadline."""

import asyncio
import socket
import time
from collections.abc import Iterator

import grpc
import numpy as np
import pytest

from server.frontends.grpc.errors import GRPC_STATUS
from server.frontends.rest.errors import HTTP_STATUS
from tests.tpuserve.client.reply_servers import Answer, over_grpc, over_http
from tpuserve.client import AsyncClient, Client
from tpuserve.errors import (
    Code,
    DeadlineExceeded,
    InvalidInput,
    InvalidReply,
    InvalidSetting,
    LimitReached,
    NotFound,
    ServerUnreachable,
    TpuserveError,
    Unavailable,
)
from tpuserve.proto import prediction_service_pb2 as pb

X = {"x": np.ones(3, np.float32)}
V2_REPLY = b'{"outputs":[{"name":"y","datatype":"FP32","shape":[2],"data":[1.5,2.5]}]}'
BUSY = Answer(503, b'{"error": "busy"}')


def grpc_reply() -> bytes:
    response = pb.PredictResponse()
    response.outputs["y"].dtype = 1
    response.outputs["y"].tensor_shape.dim.add(size=2)
    response.outputs["y"].tensor_content = np.array([1.5, 2.5], np.float32).tobytes()
    return response.SerializeToString()


def catch_error(client: Client) -> TpuserveError:
    with client, pytest.raises(TpuserveError) as caught:
        client.predict("half", X)
    return caught.value


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_a_status_has_one_class_over_http_and_grpc(code: Code) -> None:
    body = b'{"error": "the reason"}'
    with over_http(Answer(HTTP_STATUS[code], body)) as server:
        over_rest = catch_error(Client(server.url, api="v2", attempts=1))
    with over_grpc(GRPC_STATUS[code]) as handler:
        over_rpc = catch_error(Client(handler.url, attempts=1))
    assert type(over_rest) is type(over_rpc)
    if code is not Code.DEADLINE_EXCEEDED:
        assert str(over_rest) == str(over_rpc) == "the reason"


@pytest.mark.parametrize("is_async", [False, True])
def test_an_overloaded_http_server_is_asked_again(is_async: bool) -> None:
    with over_http(BUSY, BUSY, Answer(200, V2_REPLY)) as server:
        assert predict(server.url, is_async) == [1.5, 2.5]
        assert len(server.requests) == 3


@pytest.mark.parametrize("is_async", [False, True])
def test_an_overloaded_grpc_server_is_asked_again(is_async: bool) -> None:
    busy, full = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
    with over_grpc(busy, full, grpc_reply()) as handler:
        assert predict(handler.url, is_async) == [1.5, 2.5]
        assert len(handler.calls) == 3


@pytest.mark.parametrize("timeout_s", [9e9, 1e10, float("inf")])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_time_limit_may_be_infinite(is_async: bool, timeout_s: float) -> None:
    with over_http(Answer(200, V2_REPLY)) as server:
        assert predict(server.url, is_async, timeout_s=timeout_s) == [1.5, 2.5]
    with over_grpc(grpc_reply()) as handler:
        assert predict(handler.url, is_async, timeout_s=timeout_s) == [1.5, 2.5]


def predict(url: str, is_async: bool, **options: float) -> list[float]:
    api = "v2" if url.startswith("http") else "v1"

    async def predict_async() -> list[float]:
        async with AsyncClient(url, api=api, **options) as client:  # type: ignore[arg-type]
            values: list[float] = (await client.predict("half", X))["y"].tolist()
            return values

    if is_async:
        return asyncio.run(predict_async())
    with Client(url, api=api, **options) as client:  # type: ignore[arg-type]
        values: list[float] = client.predict("half", X)["y"].tolist()
        return values


def test_the_last_attempt_raises_the_error_of_the_server() -> None:
    with over_http(BUSY) as server:
        error = catch_error(Client(server.url, api="v2", attempts=2))
        assert (type(error), str(error)) == (Unavailable, "busy")
        assert len(server.requests) == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_runs_out_of_time_tells_why_it_was_sent_again(is_async: bool) -> None:
    late = Answer(504, b'{"error": "too late."}')
    with over_http(BUSY, late) as server, pytest.raises(DeadlineExceeded) as caught:
        predict(server.url, is_async)
    assert str(caught.value) == "too late. The first attempt failed: busy"


def test_a_server_says_how_long_a_client_waits() -> None:
    with over_http(Answer(429, b"{}", {"retry-after": "1"}), Answer(200, V2_REPLY)) as server:
        started = time.monotonic()
        assert predict(server.url, False) == [1.5, 2.5]
        assert time.monotonic() - started >= 1


def test_no_attempt_begins_after_the_deadline() -> None:
    with over_http(Answer(503, b"{}", {"retry-after": "3600"})) as server:
        error = catch_error(Client(server.url, api="v2", attempts=9, timeout_s=30))
        assert type(error) is Unavailable
        assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "error_type"), [(413, LimitReached), (400, InvalidInput)])
def test_a_request_that_cannot_succeed_is_sent_once(
    status: int, error_type: type[TpuserveError]
) -> None:
    with over_http(Answer(status, b"no JSON")) as server:
        error = catch_error(Client(server.url, api="v2"))
        assert type(error) is error_type
        assert str(error) == f"HTTP status {status}: no JSON"
        assert len(server.requests) == 1


@pytest.fixture
def silent() -> Iterator[int]:
    """Listen on a port, and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_silent_server_ends_the_call_at_its_deadline(silent: int, scheme: str) -> None:
    error = catch_error(Client(f"{scheme}://127.0.0.1:{silent}", timeout_s=0.2))
    assert type(error) is DeadlineExceeded
    assert str(error).startswith("the server has not answered within 0.2 s. ")


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_no_server_is_said_with_the_url_and_what_to_do(scheme: str) -> None:
    # A port that is bound and on which nobody listens.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"{scheme}://127.0.0.1:{bound.getsockname()[1]}"
        error = catch_error(Client(url, attempts=2))
    assert type(error) is ServerUnreachable
    assert str(error).startswith(f"no server answers at {url}: ")
    assert "\n" not in str(error)
    assert str(error).endswith(
        ". Start it with `tpuserve serve`, or give the URL of a server that runs."
    )


@pytest.mark.parametrize("is_async", [False, True])
def test_null_among_floats_is_nan(is_async: bool) -> None:
    with over_http(Answer(200, V2_REPLY.replace(b"2.5", b"null"))) as server:
        np.testing.assert_array_equal(predict(server.url, is_async), [1.5, np.nan])


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b'{"outputs": [{}]}',
        b'{"outputs": 3}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "parameters": null}]}',
        b'{"outputs": [{"name": "y", "datatype": "BYTES", "shape": [1], "data": [1]}]}',
    ],
)
@pytest.mark.parametrize("api", ["v1", "v2"])
def test_a_page_that_is_no_model_server_is_said(api: str, body: bytes) -> None:
    with over_http(Answer(200, body)) as server:
        error = catch_error(Client(server.url, api=api))  # type: ignore[arg-type]
    assert type(error) is InvalidReply
    assert "is that of a model server" in str(error)


@pytest.mark.parametrize(
    ("datatype", "member"),
    [
        ("INT8", '"data": [4294967296]'),
        ("BYTES", '"data": [1]'),
        ("FP32", '"data": [1], "parameters": []'),
        ("FP32", '"parameters": {"binary_data_size": -4}'),
        ("FP32", '"parameters": {"binary_data_size": "4"}'),
    ],
)
def test_an_output_of_another_form_is_said(datatype: str, member: str) -> None:
    body = f'{{"outputs": [{{"name": "y", "datatype": "{datatype}", "shape": [1], {member}}}]}}'
    with over_http(Answer(200, body.encode())) as server:
        error = catch_error(Client(server.url, api="v2"))
    assert type(error) is InvalidReply


@pytest.mark.parametrize("outputs", ["3", "null", "[1, {}]", '"yz"'])
def test_outputs_without_names_are_said(outputs: str) -> None:
    tensors = ", ".join(
        f'"{name}": {{"name": "{name}", "dtype": "DT_FLOAT", "tensor_shape": {{}}}}'
        for name in "yz"
    )
    body = (
        f'{{"metadata": {{"signature_def": {{"signature_def": {{"serving_default": '
        f'{{"outputs": {{{tensors}}}}}}}}}}}, "outputs": {outputs}}}'
    )
    with over_http(Answer(200, body.encode())) as server:
        error = catch_error(Client(server.url, api="v1"))
    assert type(error) is InvalidReply
    assert "its outputs have no names" in str(error)


@pytest.mark.parametrize("status", ['{"metadata": {"signature_def": {"signature_def": []}}}', "[]"])
def test_metadata_of_another_form_are_said(status: str) -> None:
    with over_http(Answer(200, status.encode())) as server:
        error = catch_error(Client(server.url, api="v1"))
    assert type(error) is InvalidReply


@pytest.mark.parametrize(
    "url", ["localhost:8501", "ftp://a", "http://", "http://a/v1", "http://a:b"]
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match="Give a URL such as http://localhost:8501"):
        Client(url)


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="attempts is 0"):
        Client("http://localhost", attempts=0)
    with pytest.raises(InvalidSetting, match="timeout_s is nan"):
        Client("http://localhost", timeout_s=float("nan"))
    with pytest.raises(InvalidSetting, match="Give 'v1'"):
        Client("http://localhost", api="v3")  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="ca_file is '/no/file'"):
        Client("https://localhost", ca_file="/no/file")


def test_an_api_key_is_sent_as_a_bearer_token() -> None:
    with over_http(Answer(200, V2_REPLY)) as server, Client(server.url, api="v2", api_key="k") as c:
        c.predict("half", X)
        assert server.requests[0][2]["authorization"] == "Bearer k"
    with over_grpc(grpc_reply()) as handler, Client(handler.url, api_key="k") as c:
        c.predict("half", X)
        assert handler.calls[0][2]["authorization"] == "Bearer k"


def test_a_model_of_a_server_that_starts_is_not_ready() -> None:
    for api in ("v1", "v2"):
        with over_http(BUSY) as server, Client(server.url, api=api) as client:
            assert client.is_ready("half") is False
            assert len(server.requests) == 1
        with (
            over_grpc(grpc.StatusCode.UNAVAILABLE) as handler,
            Client(handler.url, api=api) as client,
        ):
            assert client.is_ready("half") is False
    with (
        Client("http://localhost:1", api="v2") as client,
        pytest.raises(InvalidSetting, match="has no labels"),
    ):
        client.is_ready("half", label="stable")


def test_a_model_that_is_not_there_is_not_ready() -> None:
    with over_http(Answer(404, b"{}")) as server, Client(server.url) as client:
        assert client.is_ready("half") is False
        with pytest.raises(NotFound):
            client.versions("half")


def test_the_port_of_grpc_is_named_to_a_client_that_speaks_http() -> None:
    with over_grpc(grpc_reply()) as handler:
        error = catch_error(Client(handler.url.replace("grpc:", "http:"), attempts=1))
    assert "begins with grpc://" in str(error)


def test_the_signature_of_the_initialisation_op_is_left_out() -> None:
    body = (
        b'{"metadata": {"signature_def": {"signature_def": {"__saved_model_init_op": {}, '
        b'"sum": {"inputs": {}, "outputs": {}, "method_name": ""}}}}}'
    )
    with over_http(Answer(200, body)) as server, Client(server.url) as client:
        assert list(client.signatures("half")) == ["sum"]
