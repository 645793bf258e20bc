"""A REST request for a model that is not loaded waits without a thread, for its time at most."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from server.admission.admission import AdmissionController
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from tests.server.frontends.rest.conftest import Serve
from tests.server.lazy_models import LazyModels, lazy_models

SECONDS = 30


@pytest.fixture
def models() -> Iterator[LazyModels]:
    """A model "a" whose load waits for its gate, and a model "b"."""
    with lazy_models("ab") as models:
        models.gates["a"] = threading.Event()
        models.queues.start()
        yield models
        models.queues.close()


@pytest.fixture
def ask(serve: Serve, models: LazyModels) -> Callable[..., httpx.Response]:
    """Return a function that sends a predict request to a model."""
    url = _serve(serve, models)

    def ask(model: str) -> httpx.Response:
        body = {"instances": [2.0]}
        return httpx.post(f"{url}/v1/models/{model}:predict", json=body, timeout=SECONDS)

    return ask


def _serve(serve: Serve, models: LazyModels, timeout_ms: int = 0) -> str:
    settings = Settings(
        Path("/models"), rest_api_num_threads=2, rest_api_timeout_in_ms=timeout_ms or 30_000
    )
    dataplane = DataPlane(models.manager, residency=models.residency)
    app = build_rest_app(
        dataplane, settings, admission=AdmissionController(100), queues=models.queues
    )
    host, port = serve(app)
    return f"http://{host}:{port}"


def wait_until_waiting(models: LazyModels, count: int) -> None:
    while models.queues.find_use("a").waiting != count:
        threading.Event().wait(0.01)


def test_other_model_is_loaded_and_answers_while_more_requests_than_threads_wait(
    models: LazyModels, ask: Callable[..., httpx.Response]
) -> None:
    with ThreadPoolExecutor(6) as threads:
        waiting = [threads.submit(ask, "a") for _ in range(6)]
        wait_until_waiting(models, 6)
        assert ask("b").json() == {"predictions": [3.0]}
        models.gates["a"].set()
        assert [each.result().json() for each in waiting] == [{"predictions": [3.0]}] * 6
    assert models.loads == ["a", "b"]


def test_request_whose_time_is_over_before_the_end_of_the_load_ends_then(
    serve: Serve, models: LazyModels
) -> None:
    url = _serve(serve, models, timeout_ms=200)
    reply = httpx.post(f"{url}/v1/models/a:predict", json={"instances": [2.0]}, timeout=SECONDS)
    assert reply.status_code == 504
    assert "the time limit of the request has passed" in reply.json()["error"]
    assert models.queues.find_use("a").waiting == 0


def test_request_whose_client_has_left_leaves_the_queue(serve: Serve, models: LazyModels) -> None:
    host, port = _serve(serve, models).removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        body = b'{"instances": [2.0]}'
        client.sendall(
            b"POST /v1/models/a:predict HTTP/1.1\r\nHost: a\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        wait_until_waiting(models, 1)
    wait_until_waiting(models, 0)


def test_request_for_the_status_neither_waits_nor_loads(serve: Serve, models: LazyModels) -> None:
    url = _serve(serve, models)
    states = httpx.get(f"{url}/v1/models/a", timeout=SECONDS).json()["model_version_status"]
    assert [state["state"] for state in states] == ["START"]
    assert httpx.get(f"{url}/v2/models/a/ready", timeout=SECONDS).status_code == 200
    assert not models.loads
