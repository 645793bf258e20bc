"""The Open Inference Protocol over REST: infer with JSON and with binary data."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.admission.memory_budget import MemoryBudget
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app

INFER = "/v2/models/half/infer"
# 1.0, 2.0 and 5.0, and half of each plus two, as little-endian float32.
X_BYTES = bytes.fromhex("0000803f 00000040 0000a040")
Y_BYTES = bytes.fromhex("00002040 00004040 00009040")


class Client:
    """Sends requests to the application without a socket."""

    def __init__(self, app: ASGIApp) -> None:
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    def request(
        self, method: str, path: str, content: bytes = b"", headers: Any = None
    ) -> httpx.Response:
        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport) as client:
                url = "http://server" + path
                return await client.request(method, url, content=content, headers=headers)

        return asyncio.run(send())

    def infer(self, document: Any, binary: bytes | None = None, **headers: str) -> httpx.Response:
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        if binary is not None:
            headers.setdefault("Inference-Header-Content-Length", str(len(text)))
        return self.request("POST", INFER, text + (binary or b""), headers)


@pytest.fixture
def client(dataplane: DataPlane) -> Client:
    return Client(build_rest_app(dataplane))


def tensor(name: str, datatype: str, shape: list[Any], **members: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, **members}


def binary_tensor(name: str, datatype: str, shape: list[int], size: int) -> dict[str, Any]:
    return tensor(name, datatype, shape, parameters={"binary_data_size": size})


def test_json_is_answered_by_json(client: Client) -> None:
    response = client.infer({"id": "7", "inputs": [tensor("x", "FP32", [3], data=[1, 2, 5])]})
    assert response.status_code == 200
    assert response.json() == {
        "model_name": "half",
        "model_version": "3",
        "id": "7",
        "outputs": [tensor("y", "FP32", [3], data=[2.5, 3.0, 4.5])],
    }


def test_binary_data_are_answered_by_binary_data(client: Client) -> None:
    inputs = [binary_tensor("x", "FP32", [3], 12)]
    response = client.infer({"inputs": inputs, "parameters": {"binary_data_output": True}}, X_BYTES)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/octet-stream"
    size = int(response.headers["inference-header-content-length"])
    assert json.loads(response.content[:size])["outputs"] == [binary_tensor("y", "FP32", [3], 12)]
    assert response.content[size:] == Y_BYTES


def test_inputs_and_outputs_can_be_of_both_kinds(client: Client) -> None:
    response = client.infer(
        {
            "inputs": [
                tensor("a", "INT32", [1], data=[5]),
                binary_tensor("b", "INT32", [1], 4),
            ],
            "outputs": [
                {"name": "sum", "parameters": {"binary_data": True}},
                {"name": "difference"},
            ],
            "parameters": {"signature_name": "two"},
        },
        b"\2\0\0\0",
    )
    assert response.status_code == 200
    size = int(response.headers["inference-header-content-length"])
    assert json.loads(response.content[:size])["outputs"] == [
        binary_tensor("sum", "INT32", [1], 4),
        tensor("difference", "INT32", [1], data=[3]),
    ]
    assert response.content[size:] == b"\7\0\0\0"


def test_only_requested_outputs_are_sent(client: Client) -> None:
    response = client.infer(
        {
            "inputs": [tensor("a", "INT32", [1], data=[5]), tensor("b", "INT32", [1], data=[2])],
            "outputs": [{"name": "difference"}],
            "parameters": {"signature_name": "two"},
        }
    )
    assert response.json()["outputs"] == [tensor("difference", "INT32", [1], data=[3])]


def test_strings_are_preceded_by_their_lengths(client: Client) -> None:
    raw = b"\2\0\0\0\xc3\xbc\0\0\0\0"
    response = client.infer(
        {
            "inputs": [binary_tensor("text", "BYTES", [2], len(raw))],
            "outputs": [{"name": "text", "parameters": {"binary_data": True}}],
            "parameters": {"signature_name": "echo"},
        },
        raw,
    )
    assert response.status_code == 200
    assert response.content.endswith(b"}" + raw)


def test_path_chooses_the_version(client: Client) -> None:
    body = json.dumps({"inputs": [tensor("x", "FP32", [1], data=[2])]}).encode()
    for version in ("3", "003", "0" * 5000 + "3"):
        response = client.request("POST", f"/v2/models/half/versions/{version}/infer", body)
        assert response.json()["model_version"] == "3"
    assert client.request("POST", "/v2/models/half/versions/9/infer", body).status_code == 404
    assert client.request("POST", "/v2/models/other/infer", body).status_code == 404


def test_header_of_zero_bytes_less_than_the_body_is_all_json(client: Client) -> None:
    response = client.infer({"inputs": [tensor("x", "FP32", [1], data=[2])]}, b"")
    assert response.json()["outputs"][0]["data"] == [3.0]


X = binary_tensor("x", "FP32", [3], 12)


@pytest.mark.parametrize(
    ("document", "binary", "headers", "text"),
    [
        (b"{", None, {}, "JSON Parse error"),
        (b"[" * 600 + b"]" * 600, None, {}, "nest"),
        ([], None, {}, "no JSON object"),
        ({}, None, {}, "has no 'inputs'"),
        ({"inputs": [5]}, None, {}, "input 0 is no object"),
        ({"inputs": [{"name": "x"}]}, None, {}, "input 'x' has no 'datatype'"),
        ({"inputs": [tensor("x", "FP32", [1])]}, None, {}, "no list 'data'"),
        ({"inputs": [tensor("x", "FP33", [1], data=[1])]}, None, {}, "datatype 'FP33'"),
        ({"inputs": [tensor("x", "FP64", [1], data=[1])]}, None, {}, "expects float32 [?]"),
        ({"inputs": [tensor("x", "FP32", [1, 1], data=[1])]}, None, {}, "expects float32 [?]"),
        ({"inputs": [tensor("x", "FP32", [2], data=[1])]}, None, {}, "has 1 elements"),
        ({"inputs": [tensor("x", "FP32", [-1], data=[1])]}, None, {}, "0 or more"),
        ({"inputs": [tensor("x", "FP32", [2**62] * 2, data=[1])]}, None, {}, "below 2^60"),
        ({"inputs": [tensor("x", "FP32", [0, 2**62], data=[])]}, None, {}, "below 2^60"),
        ({"inputs": [tensor("x", "FP32", [1] * 33, data=[1])]}, None, {}, "at most 32"),
        ({"inputs": [tensor("x", "FP32", [1.5], data=[1])]}, None, {}, "whole numbers"),
        ({"inputs": [tensor("x", "FP32", [1], data=["a"])]}, None, {}, "expected type: float"),
        ({"inputs": [tensor("x", "FP16", [1], data=[1])]}, None, {}, "JSON cannot hold"),
        ({"inputs": [tensor("x", "UINT8", [1], data=[256])]}, None, {}, "256, which is no UINT8"),
        ({"inputs": [tensor("z", "FP32", [1], data=[1])]}, None, {}, "z"),
        ({"inputs": [X, X]}, X_BYTES, {}, "given twice"),
        ({"inputs": [X]}, X_BYTES[:-1], {}, "of which the body has 11 bytes"),
        ({"inputs": [X]}, X_BYTES + b"\0", {}, "13 bytes follow the JSON"),
        ({"inputs": [binary_tensor("x", "FP32", [2], 12)]}, X_BYTES, {}, "takes 8"),
        ({"inputs": [binary_tensor("x", "FP32", [3], -1)]}, b"", {}, "0 or more"),
        ({"inputs": [{**X, "data": [1]}]}, X_BYTES, {}, "Send one of them"),
        (
            {
                "inputs": [binary_tensor("text", "BYTES", [2], 5)],
                "parameters": {"signature_name": "echo"},
            },
            b"\xff\xff\xff\xffa",
            {},
            "do not hold 2 strings",
        ),
        ({"inputs": [X]}, X_BYTES, {"Inference-Header-Content-Length": "-1"}, "is '-1'"),
        ({"inputs": [X]}, X_BYTES, {"Inference-Header-Content-Length": "9999"}, "is '9999'"),
        ({"inputs": [X]}, X_BYTES, {"Inference-Header-Content-Length": "9" * 99}, "999"),
        ({"inputs": [X], "outputs": [{"name": "z"}]}, X_BYTES, {}, "not found in signature: z"),
        ({"inputs": [X], "outputs": [{"name": "y"}] * 2}, X_BYTES, {}, "requested twice"),
        ({"inputs": [X], "parameters": {"signature_name": "no"}}, X_BYTES, {}, '"no" not found'),
        ({"inputs": [X], "parameters": {"signature_name": 5}}, X_BYTES, {}, "Send a string"),
        (
            {"inputs": [{**X, "parameters": {"shared_memory_region": "r"}}]},
            b"",
            {},
            "in shared memory",
        ),
        (
            {"inputs": [X], "outputs": [{"name": "y", "parameters": {"classification": 2}}]},
            X_BYTES,
            {},
            "classification",
        ),
    ],
)
def test_bad_request_is_refused_in_one_line(
    client: Client, document: Any, binary: bytes | None, headers: dict[str, str], text: str
) -> None:
    response = client.infer(document, binary, **headers)
    assert response.status_code == 400, response.text
    (message,) = response.json().values()
    assert text in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/half/infer", 400),
        ("POST", "/v2/models/half", 400),
        ("GET", "/v2/nothing", 404),
        ("GET", "/v2x", 404),
        ("GET", "/v2/models/half/versions/a", 400),
        ("GET", "/v2/models/half/versions/99999999999999999999", 400),
        ("GET", "/v2/models/other", 404),
        ("GET", "/v2/models/other/ready", 404),
        ("GET", "/v2/models/half/versions/9/ready", 404),
    ],
)
def test_unknown_path_has_an_error_of_one_line(
    client: Client, method: str, path: str, status: int
) -> None:
    response = client.request(method, path)
    assert response.status_code == status, response.text
    assert "\n" not in response.json()["error"]


def test_server_and_models_are_described(client: Client) -> None:
    assert client.request("GET", "/v2").json()["name"] == "tpuserve"
    assert client.request("GET", "/v2/health/live").json() == {"live": True}
    assert client.request("GET", "/v2/health/ready").json() == {"ready": True}
    assert client.request("GET", "/v2/models/half/ready").json() == {"name": "half", "ready": True}
    assert client.request("GET", "/v2/models/half/versions/3").json() == {
        "name": "half",
        "versions": ["3"],
        "platform": "tensorflow_savedmodel",
        "inputs": [tensor("x", "FP32", [-1])],
        "outputs": [tensor("y", "FP32", [-1])],
    }


def test_health_is_told_while_the_server_starts_and_stops(dataplane: DataPlane) -> None:
    admission = AdmissionController(10)
    client = Client(build_rest_app(dataplane, admission=admission))

    def ready() -> tuple[int, Any]:
        assert client.request("GET", "/v2/health/live").json() == {"live": True}
        response = client.request("GET", "/v2/health/ready")
        return response.status_code, response.json()

    assert ready() == (503, {"ready": False})
    admission.mark_ready()
    assert ready() == (200, {"ready": True})
    admission.drain()
    assert ready() == (503, {"ready": False})
    x = tensor("x", "FP32", [1], data=[1])
    assert client.infer({"inputs": [x]}).status_code == 503


@pytest.mark.parametrize(("is_open", "status"), [(False, 401), (True, 200)])
def test_requests_need_a_key_where_keys_are_set(
    dataplane: DataPlane, tmp_path: Path, is_open: bool, status: int
) -> None:
    keys_file = tmp_path / "keys.txt"
    keys_file.write_text("let-me-in\n")
    settings = Settings(Path("/models"), open_health=is_open)
    client = Client(build_rest_app(dataplane, settings, keys=ApiKeys(keys_file)))
    assert client.request("GET", "/v2/health/live").status_code == status
    assert client.request("GET", "/v2/health/ready").status_code == status
    x = {"inputs": [tensor("x", "FP32", [1], data=[1])]}
    assert client.infer(x).status_code == 401
    assert client.infer(x, Authorization="Bearer let-me-in").status_code == 200


def test_request_beyond_the_memory_is_refused(dataplane: DataPlane) -> None:
    budget = MemoryBudget(8192)
    client = Client(build_rest_app(dataplane, memory_budget=budget))
    response = client.infer({"inputs": [binary_tensor("x", "FP32", [2048], 8192)]}, bytes(8192))
    assert response.status_code == 413
