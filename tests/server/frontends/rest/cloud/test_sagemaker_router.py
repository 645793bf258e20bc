"""A model that does not fit into memory is answered with the status that SageMaker acts on."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.sagemaker_router import SageMakerRouter
from server.frontends.rest.transport.responses import Response
from server.frontends.rest.v1_router import V1Router
from server.parsing.request_parser import RequestParser
from server.request import RequestContext
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import ask
from tpuserve.errors import (
    DamagedSavedModel,
    InvalidInput,
    MemoryBudgetExceeded,
    ModelNotFound,
    ModelsNotAvailable,
    TpuserveError,
    VersionNotFound,
)

PREDICT, HALF = "/v1/models/half:predict", b'{"instances": [1.0, 2.0]}'
BODY = json.dumps({"model_name": "large", "url": "/opt/ml/models/large/model"}).encode()


def test_lack_of_memory_is_507(dataplane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_model(model: str, base_path: str) -> None:
        raise ModelsNotAvailable("large does not load") from MemoryBudgetExceeded("out of memory")

    monkeypatch.setattr(dataplane, "add_model", add_model)
    router = SageMakerRouter(dataplane, V1Router(dataplane, RequestParser()))
    route = router.parse_route("POST", "/models")
    response = router.handle(route, (), BODY, RequestContext())
    assert isinstance(response, Response)
    assert (response.status, json.loads(response.body)) == (507, {"error": "out of memory"})


@pytest.mark.parametrize(
    "cause",
    [TpuserveError("broken"), DamagedSavedModel("broken"), None],
    ids=["unknown", "data", "two"],
)
def test_broken_model_is_no_fault_of_the_server(
    dataplane: DataPlane, monkeypatch: pytest.MonkeyPatch, cause: TpuserveError | None
) -> None:
    def add_model(model: str, base_path: str) -> None:
        raise ModelsNotAvailable("large does not load") from cause

    monkeypatch.setattr(dataplane, "add_model", add_model)
    router = SageMakerRouter(dataplane, V1Router(dataplane, RequestParser()))
    response = router.handle(router.parse_route("POST", "/models"), (), BODY, RequestContext())
    assert isinstance(response, Response)
    assert (response.status, response.code) == (400, "FAILED_PRECONDITION")


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [("DELETE", "/models/half", "remove_model"), ("POST", "/models", "add_model")],
    ids=["unload", "load"],
)
def test_loads_and_unloads_that_wait_leave_threads_to_predictions(
    dataplane: DataPlane,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    operation: str,
) -> None:
    may_wait, may_end = threading.Event(), threading.Event()

    def change(*model: str) -> None:
        if may_wait.is_set():
            assert may_end.wait(60)

    monkeypatch.setattr(dataplane, operation, change)
    settings = Settings(Path("/models/half"), sagemaker_multi_model=True, rest_api_num_threads=2)
    address = serve(build_rest_app(dataplane, settings))
    # A route whose requests are quick would run in the event loop.
    for _ in range(20):
        assert ask(address, method, path, BODY)[0].status == 200
    may_wait.set()
    with ThreadPoolExecutor(8) as pool:
        changes = [pool.submit(ask, address, method, path, BODY) for _ in range(8)]
        try:
            for _ in range(3):
                assert ask(address, "POST", PREDICT, HALF)[0].status == 200
            assert not any(change.done() for change in changes)
        finally:
            may_end.set()
        assert [change.result()[0].status for change in changes] == 8 * [200]


def test_data_plane_with_a_fixed_configuration_refuses(dataplane: DataPlane) -> None:
    router = SageMakerRouter(dataplane, V1Router(dataplane, RequestParser()))
    route = router.parse_route("DELETE", "/models/half")
    with pytest.raises(TpuserveError, match="fixed"):
        router.handle(route, (), b"", RequestContext())


@pytest.mark.parametrize(
    "model",
    [
        {"url": "http://169.254.169.254/latest"},
        {"url": "s3://bucket/half"},
        {"url": "file:///models/half"},
        {"url": "models/half"},
        {"url": "/models/\0"},
        {"url": "/models/half\nfake line"},
        {"model_name": "half\nfake line"},
        {"model_name": "a" * 257},
    ],
    ids=str,
)
def test_host_or_name_that_a_client_must_not_choose_is_refused(
    dataplane: DataPlane, monkeypatch: pytest.MonkeyPatch, model: dict[str, str]
) -> None:
    monkeypatch.setattr(dataplane, "add_model", lambda *model: pytest.fail(f"{model} was added"))
    body = json.dumps({"model_name": "half", "url": "/models/half"} | model).encode()
    router = SageMakerRouter(dataplane, V1Router(dataplane, RequestParser()))
    route = router.parse_route("POST", "/models")
    with pytest.raises(InvalidInput, match=r"the (url|model_name) is '"):
        router.handle(route, (), body, RequestContext())


def test_clients_do_not_see_what_other_directories_hold(
    dataplane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_model(model: str, base_path: str) -> None:
        raise VersionNotFound("no version directory in /root; found .ssh, secret")

    monkeypatch.setattr(dataplane, "add_model", add_model)
    router = SageMakerRouter(dataplane, V1Router(dataplane, RequestParser()))
    body = b'{"model_name": "half", "url": "/root"}'
    with pytest.raises(ModelNotFound, match="no model in '/root'") as caught:
        router.handle(router.parse_route("POST", "/models"), (), body, RequestContext())
    assert "secret" not in str(caught.value)
