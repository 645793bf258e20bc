"""Pages of other sites cannot let a browser change the server, nor reach it by another name."""

from pathlib import Path

import pytest

from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest import origins
from server.frontends.rest.app import build_rest_app
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.wire import ask
from tpuserve.errors import ForeignRequest, InvalidInput

NAMES = frozenset({"models.example"})


def encode(**headers: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "10.0.0.1:8501"},
        {"host": "anything", "content_type": "application/json; charset=utf-8"},
        {"host": "10.0.0.1:8501", "origin": "http://10.0.0.1:8501"},
        {"host": "[::1]:8501", "origin": "https://[::1]:8501", "sec_fetch_site": "same-origin"},
        {"host": "Models.example", "sec_fetch_site": "none"},
        {"host": "10.0.0.1:8501", "origin": "https://models.example"},
    ],
)
def test_programs_and_own_pages_may_change_the_server(headers: dict[str, str]) -> None:
    origins.check_change(encode(**headers), NAMES)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "10.0.0.1:8501", "origin": "http://evil.example"},
        {"host": "10.0.0.1:8501", "origin": "http://10.0.0.1:9000"},
        {"host": "10.0.0.1:8501", "origin": "null"},
        {"host": "10.0.0.1:8501", "sec_fetch_site": "cross-site"},
        {"host": "10.0.0.1:8501", "sec_fetch_site": "same-site"},
        # After DNS rebinding, the browser takes the server for a part of the other site.
        {"host": "evil.example", "origin": "http://evil.example", "sec_fetch_site": "same-origin"},
    ],
)
def test_pages_of_other_sites_cannot_change_the_server(headers: dict[str, str]) -> None:
    with pytest.raises(ForeignRequest):
        origins.check_change(encode(**headers), NAMES)


def test_change_may_not_be_sent_as_a_form_sends_it() -> None:
    with pytest.raises(InvalidInput, match="'text/plain'. Send application/json"):
        origins.check_change(encode(host="a", content_type="text/plain"), NAMES)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2/repository/models/half/unload"),
        ("POST", "/v2/repository/models/half/load"),
        ("POST", "/models"),
        ("DELETE", "/models/half"),
    ],
)
def test_each_route_that_changes_models_checks_the_origin(
    dataplane: DataPlane, serve: Serve, tmp_path: Path, method: str, path: str
) -> None:
    settings = Settings(tmp_path, enable_model_control=True, sagemaker_multi_model=True)
    address = serve(build_rest_app(dataplane, settings))
    reply, body = ask(address, method, path, b"{}", {"Origin": "http://evil.example"})
    assert reply.status == 403
    assert b"a page of http://evil.example" in body


@pytest.mark.parametrize("path", ["/v1/models/half", "/v1/models/half:predict", "/healthz", "/"])
def test_names_are_refused_that_are_not_allowed(
    dataplane: DataPlane, serve: Serve, tmp_path: Path, path: str
) -> None:
    app = build_rest_app(dataplane, Settings(tmp_path, allowed_hosts="a.example, models.example"))
    address = serve(app)
    method = "POST" if path.endswith("predict") else "GET"
    for host, is_allowed in (
        ("evil.example", False),
        ("MODELS.example:8501", True),
        ("a.example", True),
        ("localhost", True),
        ("127.0.0.1:8501", True),
        ("[::1]:8501", True),
    ):
        reply, _ = ask(address, method, path, b'{"inputs": 2}', {"Host": host})
        assert (reply.status != 403) == is_allowed, host
