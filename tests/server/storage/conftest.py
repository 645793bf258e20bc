"""Fixtures of the tests of remote storage: a web server and the models that it offers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.storage.model_cache import ModelCache
from server.storage.remote_models import RemoteModels
from tests.server.storage.web_server import WebServer, serve_directory


@pytest.fixture
def cache_directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def remote_models(cache_directory: Path) -> RemoteModels:
    return RemoteModels(ModelCache(cache_directory, 0))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The directory that the web server offers."""
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


@pytest.fixture
def web_server(site: Path) -> Iterator[WebServer]:
    with serve_directory(site) as server:
        yield server
