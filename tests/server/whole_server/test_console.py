"""The console shows the state, the requests and the errors of the server."""

from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest

from tests.server.frontends.grpc import clients
from tests.server.whole_server.fake_server import SECONDS, FakeServer

pytestmark = pytest.mark.slow

HTML = {"Accept": "text/html"}
INVALID = '{"instances": ["a"]}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    """Return a server that has answered 6 requests with 2 rows, and refused 6 and 1 over gRPC."""
    server = FakeServer(tmp_path_factory.mktemp("console"))
    for _ in range(6):
        for body in ('{"instances": [1, 2]}', INVALID):
            httpx.post(f"{server.url}/v1/models/half:predict", content=body, timeout=SECONDS)
    with clients.connect(server.rpc) as client, pytest.raises(grpc.RpcError):
        client.predict(y=[1.0])
    yield server
    server.kill()


@pytest.fixture(scope="module")
def status(server: FakeServer) -> dict[str, Any]:
    return dict(httpx.get(f"{server.url}/console/status", timeout=SECONDS).json())


def test_status_counts_the_requests_of_each_code(status: Any) -> None:
    (model,) = status["models"]
    assert model["requests"] == {"OK": 6, "INVALID_ARGUMENT": 7}
    assert sum(model["latency_counts"]) == 6
    (version,) = model["versions"]
    assert (version["state"], version["requests"], version["rows"]) == ("AVAILABLE", 6, 12)
    assert "CPU" in version["selection"]
    assert status["unready_reason"] == ""
    assert 0 < status["resident_bytes"] < status["memory_bytes"]


def test_equal_errors_share_an_entry(status: Any) -> None:
    counts = {(error["protocol"], error["status"]): error["count"] for error in status["errors"]}
    assert counts == {("REST", "INVALID_ARGUMENT"): 6, ("GRPC", "INVALID_ARGUMENT"): 1}
    messages = [error["message"] for error in status["errors"]]
    assert all(messages)


def test_page_and_signatures_are_served(server: FakeServer) -> None:
    page = httpx.get(f"{server.url}/", headers=HTML, timeout=SECONDS)
    assert page.text.startswith("<!DOCTYPE html>")
    query = {"model": "half", "version": "3"}
    answer = httpx.get(f"{server.url}/console/signatures", params=query, timeout=SECONDS).json()
    assert answer["signatures"][0]["name"] == "serving_default"
