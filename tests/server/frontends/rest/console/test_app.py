"""The console's page, its files, its status, and the index for other clients."""

import asyncio
import dataclasses
import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.batching.factory import BatchingRunnerFactory
from server.config.batching_parameters import BatchingParameters
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest import console
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.console import app as paths
from server.frontends.rest.console.app import ConsoleApp
from server.frontends.rest.transport.responses import Response
from server.metrics import Metrics
from server.models.manager import Manager
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeLoader, FakeModel
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import Address, ask
from tpuserve.errors import DamagedSavedModel
from tpuserve.graph.state_writes import Write

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
SETTINGS: dict[str, Any] = {"model_base_path": Path("/models/half")}
PREDICT = "/v1/models/half:predict"


def start(dataplane: DataPlane, serve: Serve, metrics: Metrics | None = None) -> Address:
    return serve(build_rest_app(dataplane, Settings(**SETTINGS), metrics=metrics))


def status(address: Address, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    reply, body = ask(address, "GET", paths.STATUS, headers=headers)
    assert reply.status == 200
    return dict(json.loads(body))


def test_browsers_get_the_page_and_other_clients_an_index(
    dataplane: DataPlane, serve: Serve
) -> None:
    address = start(dataplane, serve)
    page, html = ask(address, "GET", "/", headers=HTML)
    assert (page.status, page.getheader("content-type")) == (200, "text/html; charset=utf-8")
    assert html.startswith(b"<!DOCTYPE html>")
    for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        index, body = ask(address, "GET", "/", headers=headers)
        assert (index.status, index.getheader("content-type")) == (200, "application/json")
        links = json.loads(body)
        assert (links["name"], "metrics" in links) == ("tpuserve", False)
        for name in ("models", "openapi", "docs", "health"):
            assert ask(address, "GET", links[name])[0].status == 200


def test_page_loads_files_of_this_server_only(dataplane: DataPlane, serve: Serve) -> None:
    address = start(dataplane, serve)
    reply, html = ask(address, "GET", "/", headers=HTML)
    policy = str(reply.getheader("content-security-policy"))
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    named = set(re.findall(r'(?:src|href)="(/console/[^"]+)"', html.decode()))
    for name, content_type in paths.FILES.items():
        reply, body = ask(address, "GET", paths.STATIC + name)
        assert (reply.status, reply.getheader("content-type")) == (200, content_type.decode())
        named.update(re.findall(r'from "(/console/[^"]+)"', body.decode()))
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", body.decode())
    assert named == {paths.STATIC + name for name in paths.FILES}
    assert not re.search(r"<script>|<style|style=|\son\w+=", html.decode())


def test_package_contains_no_other_files() -> None:
    files = {file.name for file in resources.files(console).joinpath("static").iterdir()}
    assert files == {"index.html", *paths.FILES}


def test_unknown_files_and_methods_are_refused(dataplane: DataPlane, serve: Serve) -> None:
    address = start(dataplane, serve)
    for path in ("/console/", "/console/static/", "/console/static/../app.py", "/console/statuses"):
        assert ask(address, "GET", path)[0].status == 404, path
    reply, body = ask(address, "POST", "/", b"{}")
    assert (reply.status, json.loads(body)) == (400, {"error": "Malformed request: POST /"})


def test_flag_turns_the_page_off(dataplane: DataPlane, serve: Serve) -> None:
    address = serve(build_rest_app(dataplane, Settings(**SETTINGS, enable_console=False)))
    for path in (paths.STATUS, paths.STATIC + "console.js"):
        assert ask(address, "GET", path)[0].status == 404
    reply, body = ask(address, "GET", "/", headers=HTML)
    assert (reply.status, json.loads(body)["name"]) == (200, "tpuserve")


def test_status_requires_the_key_and_the_page_does_not(
    dataplane: DataPlane, serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("sesame\n")
    keys = ApiKeys(tmp_path / "keys")
    address = serve(build_rest_app(dataplane, Settings(**SETTINGS), keys=keys))
    for path in paths.OPEN_PATHS:
        assert ask(address, "GET", path, headers=HTML)[0].status == 200
    reply, body = ask(address, "GET", paths.STATUS)
    assert (reply.status, "API key" in json.loads(body)["error"]) == (401, True)
    models = status(address, {"Authorization": "Bearer sesame"})["models"]
    assert [model["name"] for model in models] == ["half"]


def test_index_requires_the_key_without_the_page(
    dataplane: DataPlane, serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("sesame\n")
    settings = Settings(**SETTINGS, enable_console=False)
    address = serve(build_rest_app(dataplane, settings, keys=ApiKeys(tmp_path / "keys")))
    assert ask(address, "GET", "/")[0].status == 401


def test_status_tells_states_and_why(serve: Serve) -> None:
    loader = FakeLoader()
    loader.failures[4] = DamagedSavedModel("the file is truncated. Export the model again.")
    manager = Manager(loader)
    aspire(manager, "half", {3: Path("/models/half/3"), 4: Path("/models/half/4")})
    (model,) = status(start(DataPlane(manager), serve))["models"]
    failed, available = model["versions"]
    assert (failed["version"], failed["state"], failed["is_failed"]) == ("4", "END", True)
    assert failed["reason"] == "the file is truncated. Export the model again."
    assert (available["version"], available["state"]) == ("3", "AVAILABLE")
    assert available["selection"] == "{serve} on CPU (a fake)"
    assert (available["is_failed"], failed["selection"]) == (False, "")


def test_status_tells_why_a_signature_is_not_batched(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Write("updates a variable", "AssignAddVariableOp", "n/add")
    signature = dataclasses.replace(FakeModel.signatures["serving_default"], write=write)
    monkeypatch.setattr(FakeModel, "signatures", {"serving_default": signature})
    runners = BatchingRunnerFactory(BatchingParameters())
    manager = Manager(FakeLoader(), make_runner=runners.wrap)
    aspire(manager, "half", {3: Path("/models/half/3")})
    (model,) = status(start(DataPlane(manager), serve))["models"]
    assert model["versions"][0]["reason"] == (
        "serving_default is not batched: it updates a variable (AssignAddVariableOp, node n/add)"
    )
    runners.close()


def test_status_counts_requests_rows_and_errors(dataplane: DataPlane, serve: Serve) -> None:
    address = start(dataplane, serve, Metrics())
    for _ in range(3):
        assert ask(address, "POST", PREDICT, b'{"instances": [1, 2]}')[0].status == 200
        assert ask(address, "POST", PREDICT, b'{"instances": ["a"]}')[0].status == 400
    answer = status(address)
    (model,) = answer["models"]
    assert model["requests"] == {"OK": 3, "INVALID_ARGUMENT": 3}
    assert sum(model["latency_counts"]) == 3
    assert len(model["latency_counts"]) == len(answer["latency_bounds_us"]) + 1
    (version,) = model["versions"]
    assert (version["requests"], version["rows"], version["batching"]) == (3, 6, None)
    (error,) = answer["errors"]
    assert (error["model"], error["protocol"], error["count"]) == ("half", "REST", 3)
    assert "not of expected type: float" in error["message"]


def test_status_says_why_the_server_is_not_ready(dataplane: DataPlane, serve: Serve) -> None:
    admission = AdmissionController()
    app = build_rest_app(dataplane, Settings(**SETTINGS), admission=admission)
    address = serve(app)
    admission.begin_startup(lambda: "loading half")
    assert status(address)["unready_reason"] == "the server is starting: loading half"
    admission.mark_ready()
    assert status(address)["unready_reason"] == ""


@pytest.mark.parametrize("path", ["/", paths.STATUS])
def test_requests_of_the_page_are_not_counted(
    dataplane: DataPlane, serve: Serve, path: str
) -> None:
    metrics = Metrics()
    address = start(dataplane, serve, metrics)
    ask(address, "GET", path, headers=HTML)
    assert b"request_count{" not in metrics.exposition()


@pytest.mark.parametrize("path", [paths.STATUS, f"{paths.SIGNATURES}?model=half&version=3"])
def test_polls_at_the_same_time_are_answered_once(dataplane: DataPlane, path: str) -> None:
    console_app = ConsoleApp(dataplane, Metrics(), is_enabled=True)

    async def poll() -> list[Response]:
        polls = (console_app.answer(path, "GET", (), lambda: "") for _ in range(1000))
        return await asyncio.gather(*polls)

    replies = asyncio.run(poll())
    assert {reply.status for reply in replies} == {200}
    assert len({id(reply.body) for reply in replies}) == 1
