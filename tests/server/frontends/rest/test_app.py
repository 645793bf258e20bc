"""The REST API answers as TensorFlow Serving's does."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest
from starlette.types import ASGIApp

from server.admission.memory_budget import MemoryBudget
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.models.manager import Manager
from server.servables.servable import Array
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeLoader, spec
from tpuserve.errors import LoweringError
from tpuserve.saved_model.signature import Signature

PREDICT = "/v1/models/half:predict"


class Client:
    """Sends requests to the application without a socket."""

    def __init__(self, app: ASGIApp) -> None:
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    def request(self, method: str, path: str, content: str | bytes = b"") -> httpx.Response:
        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport) as client:
                return await client.request(method, "http://server" + path, content=content)

        return asyncio.run(send())

    def get(self, path: str) -> httpx.Response:
        return self.request("GET", path)

    def post(self, path: str, content: str | bytes) -> httpx.Response:
        return self.request("POST", path, content)


@pytest.fixture
def client(dataplane: DataPlane) -> Client:
    return Client(build_rest_app(dataplane))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"instances": [1.0, 2.0, 5.0]}', {"predictions": [2.5, 3.0, 4.5]}),
        ('{"inputs": {"x": [1, 2, 5]}}', {"outputs": [2.5, 3.0, 4.5]}),
        (
            '{"signature_name": "two", "instances": [{"a": 5, "b": 2}]}',
            {"predictions": [{"sum": 7, "difference": 3}]},
        ),
        (
            '{"signature_name": "echo", "inputs": {"b64": "w7w="}}',
            {"outputs": {"text": "ü", "text_bytes": {"b64": "w7w="}}},
        ),
    ],
)
def test_response_has_the_format_of_the_request(
    client: Client, body: str, expected: object
) -> None:
    response = client.post(PREDICT, content=body)
    assert (response.status_code, response.json()) == (200, expected)
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("zeros", [2, 5000])
def test_path_chooses_the_version(client: Client, zeros: int) -> None:
    path = f"/v1/models/half/versions/{'0' * zeros}3:predict"
    response = client.post(path, content='{"inputs": [2]}')
    assert response.json() == {"outputs": [3.0]}


def test_infinity_is_encoded_as_tensorflow_serving_encodes_it(client: Client) -> None:
    body = '{"signature_name": "ratio", "instances": [0.0, 2.0]}'
    expected = b'{\n    "predictions": [Infinity, 0.5\n    ]\n}'
    assert client.post(PREDICT, content=body).content == expected


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/v1/models/other:predict", 404, "Servable not found for request: Latest(other)"),
        (
            "/v1/models/half/versions/99:predict",
            404,
            "Servable not found for request: Specific(half, 99)",
        ),
        (
            f"/v1/models/half/versions/{2**63}:predict",
            400,
            f"Failed to convert version: {2**63} to numeric.",
        ),
        (
            f"/v1/models/half/versions/{'9' * 5000}:predict",
            400,
            f"Failed to convert version: {'9' * 5000} to numeric.",
        ),
        ("/v1/models/a%2Fb:predict", 404, "Servable not found for request: Latest(a/b)"),
        ("/v1/models/a/b:predict", 400, "Malformed request: POST /v1/models/a/b:predict"),
        ("/v1/models/a:b:predict", 400, "Malformed request: POST /v1/models/a:b:predict"),
        ("/v1/models/half:explain", 400, "Malformed request: POST /v1/models/half:explain"),
        ("/v1/models/half", 400, "Malformed request: POST /v1/models/half"),
        ("/v1/a%20b?c=d", 400, "Malformed request: POST /v1/a%20b?c=d"),
    ],
)
def test_other_paths_are_refused_with_their_text(
    client: Client, path: str, status: int, message: str
) -> None:
    response = client.post(path, content='{"inputs": [2]}')
    assert (response.status_code, response.json()) == (status, {"error": message})


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "PATCH"])
def test_predict_requires_post(client: Client, method: str) -> None:
    response = client.request(method, PREDICT)
    assert response.status_code == 400
    if method != "HEAD":
        assert response.json() == {"error": f"Malformed request: {method} {PREDICT}"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "JSON Parse error: The document is empty"),
        (b"not json", "JSON Parse error: Expecting value at offset: 0"),
        (b"[1]", "JSON Value: [\n    1\n] Is not object"),
        (b"{}", "Missing 'inputs' or 'instances' key"),
        (b'{"instances": [[1, 2], [3]]}', "Expecting tensor size: 2 but got: 1"),
        (b'{"inputs": [[1, 2], [3]]}', "Encountered list at unexpected size: 1 at level: 1"),
        (b'{"inputs": ["a"]}', 'Value: "a" Type: String is not of expected type: float'),
        (b'{"inputs": [[[1]]]}', "input must be a vector or a matrix"),
        (b'{"inputs": ["\\ud800"]}', "The surrogate pair in string is invalid"),
        (
            b'{"signature_name": "S", "inputs": [1]}',
            'Serving signature name: "S" not found in signature def',
        ),
        (b'{"inputs": ' + b"[" * 50_000, "nested more than 512 levels deep"),
    ],
)
def test_bad_body_is_refused_with_400(client: Client, body: bytes, message: str) -> None:
    response = client.post(PREDICT, content=body)
    assert response.status_code == 400
    assert message in response.json()["error"]


def test_unsupported_type_is_501(client: Client, loader: FakeLoader) -> None:
    loader.models[3].signatures = {"serving_default": Signature({"x": spec("float16")}, {})}
    assert client.post(PREDICT, content='{"inputs": [1]}').status_code == 501


def test_internal_error_reveals_no_details(client: Client) -> None:
    response = client.post(PREDICT, content='{"signature_name": "broken", "inputs": [1]}')
    assert response.status_code == 500
    assert response.json() == {"error": "Internal error, see the server's log"}


AVAILABLE = {
    "version": "3",
    "state": "AVAILABLE",
    "status": {"error_code": "OK", "error_message": ""},
}


@pytest.mark.parametrize("path", ["/v1/models/half", "/v1/models/half/versions/3"])
def test_status_is_proto3_json(client: Client, path: str) -> None:
    assert client.get(path).json() == {"model_version_status": [AVAILABLE]}


def test_status_contains_the_error_of_a_failed_version(
    client: Client, manager: Manager, loader: FakeLoader
) -> None:
    loader.failures[4] = LoweringError("no form on a CPU")
    aspire(manager, "half", {4: Path("/models/half/4")})
    failed = client.get("/v1/models/half").json()["model_version_status"][0]
    assert (failed["version"], failed["state"]) == ("4", "END")
    assert failed["status"] == {"error_code": "UNIMPLEMENTED", "error_message": "no form on a CPU"}


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/v1/models/versions/3", 400, "Missing model name in request."),
        ("/v1/models/metadata", 404, "Could not find any versions of model metadata"),
        ("/v1/models/other", 404, "Could not find any versions of model other"),
        ("/v1/models/half/versions/9", 404, "Could not find version 9 of model half"),
        ("/v1/models/half/", 400, "Malformed request: GET /v1/models/half/"),
        ("/v1/models/half?x=1", 404, "Could not find any versions of model half?x=1"),
        ("/v1/models/half/Metadata", 400, "Malformed request: GET /v1/models/half/Metadata"),
        ("/v1/", 400, "Malformed request: GET /v1/"),
        ("/V1/other", 400, "Malformed request: GET /V1/other"),
    ],
)
def test_status_of_an_unknown_model_or_version_is_an_error(
    client: Client, path: str, status: int, message: str
) -> None:
    response = client.get(path)
    assert (response.status_code, response.json()) == (status, {"error": message})


def _return(outputs: dict[str, Array], name: str, inputs: object) -> dict[str, Array]:
    return outputs


@pytest.mark.parametrize(
    "make_output",
    [
        # A number takes four bytes as float32, and 26 bytes are reserved for its text.
        lambda size: np.zeros(size, np.float32),
        # Six bytes are reserved for the text of each byte of a string.
        lambda size: np.array([b"a" * (4 * size)], object),
    ],
    ids=["numbers", "one string"],
)
def test_outputs_and_their_text_count_in_the_memory_budget(
    make_output: Callable[[int], Array],
    dataplane: DataPlane,
    loader: FakeLoader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = MemoryBudget(16 << 20)
    client = Client(build_rest_app(dataplane, memory_budget=budget))
    model = loader.models[3]
    for size, status in ((1 << 19, 200), (1 << 20, 413), (1 << 19, 200)):
        outputs = {"y": make_output(size)}
        monkeypatch.setattr(model, "_run", partial(_return, outputs))
        reply = client.post(PREDICT, '{"inputs": 2}')
        assert reply.status_code == status
    assert budget.reserved_bytes == 0
