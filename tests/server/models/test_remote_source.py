"""Remote versions are downloaded and served, and their failures delay no other model."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from server.config.model_config import ModelConfig, ModelServerConfig
from server.models.config_manager import ModelConfigManager
from server.models.file_system_source import FileSystemSource
from server.models.manager import Manager
from server.models.servable_loader import Retries
from server.servables.servable import Model, State
from server.storage.model_cache import ModelCache
from server.storage.remote_models import RemoteModels
from tests.server.fakes import FakeModel
from tests.server.storage.web_server import WebServer, serve_directory, write_version
from tpuserve.errors import Code, ModelsNotAvailable


class Models:
    """A web server with models, and a manager that loads them."""

    def __init__(self, directory: Path, web_server: WebServer) -> None:
        self.site, self.cache = directory / "site", directory / "cache"
        self.web_server = web_server
        self.loaded_texts: list[str] = []
        retries = Retries(count=0, interval_seconds=0.1)
        remote_models = RemoteModels(ModelCache(self.cache, 0))
        self.manager = Manager(self.load, retries=retries, downloader=remote_models)
        self.source = FileSystemSource(self.manager, remote_models)
        self.config_manager = ModelConfigManager(self.manager, self.source)

    def load(self, directory: Path) -> Model:
        assert (directory / "variables" / "variables.data").stat().st_size == 100_000
        self.loaded_texts.append((directory / "saved_model.pb").read_text())
        return FakeModel()

    def config(self, *names: str) -> ModelServerConfig:
        return ModelServerConfig(
            tuple(ModelConfig(name, f"{self.web_server.uri}/{name}") for name in names)
        )

    def wait(self, is_done: Callable[[], bool]) -> None:
        assert self.manager.wait(is_done, 120)

    def poll(self) -> None:
        for thread in self.source._poll_all():
            thread.join()


@pytest.fixture
def models(tmp_path: Path) -> Iterator[Models]:
    (tmp_path / "site").mkdir()
    with serve_directory(tmp_path / "site") as web_server:
        models = Models(tmp_path, web_server)
        yield models
        models.manager.close(60)


def test_versions_are_downloaded_loaded_and_replaced(models: Models) -> None:
    write_version(models.site / "half" / "1", "first")
    models.config_manager.start(models.config("half"))
    assert models.manager.is_available("half", 1)
    write_version(models.site / "half" / "2", "second")
    models.poll()
    models.wait(lambda: models.manager.is_available("half", 2))
    models.wait(lambda: models.manager.status("half", 1)[0].state is State.END)
    assert models.loaded_texts == ["first", "second"]


def test_failed_download_is_retried_and_the_status_says_why(models: Models) -> None:
    write_version(models.site / "half" / "1")
    models.config_manager.start(models.config("half"))
    write_version(models.site / "half" / "2")
    cut_path = "/half/2/variables/variables.data"
    models.web_server.cut_paths.add(cut_path)
    models.poll()
    models.wait(lambda: models.manager.status("half", 2)[0].error is not None)
    (status,) = models.manager.status("half", 2)
    assert status.state is State.LOADING
    assert status.error is not None
    assert status.error.code in (Code.UNAVAILABLE, Code.DATA_LOSS)
    assert cut_path in str(status.error)
    assert models.manager.is_available("half", 1)
    models.web_server.cut_paths.clear()
    models.wait(lambda: models.manager.is_available("half", 2))
    assert models.loaded_texts == ["graph", "graph"]


def test_download_delays_no_other_model(models: Models) -> None:
    may_continue = threading.Event()

    def hold(path: str) -> None:
        if path == "/slow/1/saved_model.pb":
            assert may_continue.wait(120)

    models.web_server.before_get = hold
    write_version(models.site / "slow" / "1")
    write_version(models.site / "fast" / "1")
    models.source.set_models(models.config("slow", "fast").models)
    models.wait(lambda: models.manager.is_available("fast"))
    assert models.manager.status("slow")[0].state is State.LOADING
    may_continue.set()
    models.wait(lambda: models.manager.is_available("slow"))


def test_listing_delays_no_other_model(models: Models) -> None:
    may_continue = threading.Event()

    def hold(path: str) -> None:
        if path == "/slow/SHA256SUMS":
            assert may_continue.wait(120)

    models.web_server.before_get = hold
    write_version(models.site / "slow" / "1")
    write_version(models.site / "half" / "1")
    local = ModelConfig("local", str(models.site / "half"))
    config = (*models.config("slow", "half").models, local)
    setting = threading.Thread(target=models.source.set_models, args=(config,))
    setting.start()
    for name in ("local", "half"):
        models.wait(lambda: models.manager.is_available(name))  # noqa: B023
    may_continue.set()
    setting.join()
    models.wait(lambda: models.manager.is_available("slow"))


def test_reload_with_a_download_that_fails_ends_with_the_reason(models: Models) -> None:
    write_version(models.site / "half" / "1")
    models.config_manager.start(models.config("half"))
    write_version(models.site / "cut" / "1")
    models.web_server.cut_paths.add("/cut/1/saved_model.pb")
    with pytest.raises(ModelsNotAvailable, match=r"name: cut version: 1} due to error: .*/cut/1/"):
        models.config_manager.reload(models.config("half", "cut"))
    assert models.manager.is_available("half")
    with pytest.raises(ModelsNotAvailable, match="name: absent} due to error: NOT_FOUND: http"):
        models.config_manager.reload(models.config("half", "absent"))
    assert models.manager.is_available("half")


def test_version_that_is_not_loaded_may_leave_the_cache(models: Models) -> None:
    write_version(models.site / "half" / "1")
    models.config_manager.start(models.config("half"))
    cache = ModelCache(models.cache, 1)
    write_version(models.site / "half" / "2")
    models.poll()
    models.wait(lambda: models.manager.status("half", 1)[0].state is State.END)
    models.wait(lambda: len(models.manager._leases) == 1)
    loaded = models.manager.status("half", 2)[0]
    assert loaded.state is State.AVAILABLE
    directory = cache.directory_of("other", 1)
    with pytest.raises(Exception, match="do(es)? not fit"):
        cache.acquire(directory, 2, lambda path: None, lambda: False)
    assert len([path for path in models.cache.iterdir() if path.is_dir()]) == 1
