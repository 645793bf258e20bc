"""SageMaker's contract for containers with several models.

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/mms-container-apis.html.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.whole_server.fake_server import SECONDS, FakeServer

pytestmark = pytest.mark.slow


class MultiModelServer(FakeServer):
    """A server that begins without a model."""

    def __init__(self, directory: Path, **flags: Any) -> None:
        flags |= {"sagemaker_multi_model": True, "model_base_path": "", "health_route": "/ping"}
        super().__init__(directory, **flags)

    def send(self, method: str, path: str, body: object = None) -> httpx.Response:
        return httpx.request(method, self.url + path, json=body, timeout=SECONDS)

    def load(self, name: str, url: object) -> httpx.Response:
        return self.send("POST", "/models", {"model_name": name, "url": str(url)})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MultiModelServer]:
    server = MultiModelServer(tmp_path_factory.mktemp("models"))
    yield server
    server.kill()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the directory of a model, as SageMaker unpacks it."""
    directory = tmp_path / "hash" / "model"
    (directory / "1").mkdir(parents=True)
    return directory


def test_server_without_a_model_is_healthy_and_lists_none(server: MultiModelServer) -> None:
    ping = server.send("GET", "/ping")
    assert (ping.status_code, ping.content) == (200, b"")
    assert server.send("GET", "/models").json() == {"models": []}


def test_model_is_loaded_invoked_and_unloaded(server: MultiModelServer, model: Path) -> None:
    assert server.load("first", model).status_code == 200
    entry = {"modelName": "first", "modelUrl": str(model)}
    assert server.send("GET", "/models").json() == {"models": [entry]}
    assert server.send("GET", "/models/first").json() == entry
    answer = server.send("POST", "/models/first/invoke", {"instances": [1.0, 2.0]})
    assert (answer.status_code, answer.json()) == (200, {"predictions": [2.5, 3.0]})
    assert server.send("DELETE", "/models/first").status_code == 200
    assert server.send("GET", "/models").json() == {"models": []}
    answer = server.send("POST", "/models/first/invoke", {"instances": [1.0]})
    assert answer.status_code == 404


def test_name_in_use_is_a_conflict(server: MultiModelServer, model: Path) -> None:
    assert server.load("twice", model).status_code == 200
    conflict = server.load("twice", model)
    assert conflict.status_code == 409
    assert conflict.json()["error"].startswith("a model is named 'twice' already. Unload it first")
    assert server.send("DELETE", "/models/twice").status_code == 200


@pytest.mark.parametrize("path", ["/models/none", "/models/none/invoke"])
def test_unknown_model_is_not_found(server: MultiModelServer, path: str) -> None:
    method = "POST" if path.endswith("invoke") else "GET"
    assert server.send(method, path, {"instances": [1.0]}).status_code == 404
    assert server.send("DELETE", "/models/none").status_code == 404


def test_directory_without_a_model_is_refused_and_leaves_nothing(
    server: MultiModelServer, tmp_path: Path
) -> None:
    answer = server.load("empty", tmp_path / "nothing")
    assert answer.status_code == 404
    assert "\n" not in answer.json()["error"]
    assert server.send("GET", "/models").json() == {"models": []}


@pytest.mark.parametrize("body", [[], {"model_name": "a"}, {"model_name": 1, "url": "/a"}])
def test_invalid_body_is_refused(server: MultiModelServer, body: object) -> None:
    answer = server.send("POST", "/models", body)
    assert answer.status_code == 400
    assert '"model_name" and "url"' in answer.json()["error"]


@pytest.mark.parametrize(("method", "path"), [("PUT", "/models"), ("GET", "/models/a/invoke")])
def test_other_paths_are_not_found(server: MultiModelServer, method: str, path: str) -> None:
    assert server.send(method, path).status_code == 404


def test_load_that_does_not_fit_is_507_until_sagemaker_unloads_a_model(
    tmp_path: Path, model: Path
) -> None:
    # A fake model without a graph counts with half a megabyte.
    server = MultiModelServer(tmp_path, max_model_memory="1.2MB")
    try:
        assert [server.load(name, model).status_code for name in "abc"] == [200, 200, 507]
        assert "model c needs about 500 kB, and models that stay" in server.load("c", model).text
        assert server.send("DELETE", "/models/a").status_code == 200
        assert server.load("c", model).status_code == 200
    finally:
        server.kill()


def test_lazy_models_are_listed_loaded_by_invoke_and_unloaded_for_each_other(
    tmp_path: Path, model: Path
) -> None:
    server = MultiModelServer(tmp_path, max_model_memory="1.2MB", lazy_load=True)
    try:
        for name in "abc":
            assert server.load(name, model).status_code == 200
        for name in "abca":
            answer = server.send("POST", f"/models/{name}/invoke", {"instances": [1.0]})
            assert answer.json() == {"predictions": [2.5]}
        assert server.log_text.count("it is the least recently used") == 2
        (model / "1" / "variables").write_bytes(bytes(1_000_000))
        assert server.load("large", model).status_code == 507
    finally:
        server.kill()
