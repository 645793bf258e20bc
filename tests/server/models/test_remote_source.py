"""Remote versions are downloaded and served, and their failures delay no other model."""

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from server.config.model_config import ModelConfig, ModelServerConfig
from server.models import manager
from server.models.config_manager import ModelConfigManager
from server.models.file_system_source import FileSystemSource
from server.models.manager import Manager
from server.models.residency import Residency
from server.models.servable_loader import Retries
from server.servables.servable import Model, State
from server.storage.keras_exporter import KerasExporter
from server.storage.model_cache import ModelCache
from server.storage.remote_models import RemoteModels
from tests.server.fakes import FakeModel
from tests.server.storage.web_server import WebServer, serve_directory, write_version
from tests.threads import no_new_threads
from tpuserve.errors import Code, ModelFileRefused, ModelsNotAvailable, Unavailable


class Models:
    """A web server with models, and a manager that loads them."""

    def __init__(
        self,
        directory: Path,
        web_server: WebServer,
        listing_wait_seconds: float = 120,
        exporter: KerasExporter | None = None,
        residency: Residency | None = None,
    ) -> None:
        self.site, self.cache = directory / "site", directory / "cache"
        self.web_server = web_server
        self.loaded_texts: list[str] = []
        retries = Retries(count=0, interval_seconds=0.1)
        remote_models = RemoteModels(ModelCache(self.cache, 0), exporter)
        self.manager = Manager(
            self.load, retries=retries, downloader=remote_models, residency=residency
        )
        self.source = FileSystemSource(self.manager, remote_models, listing_wait_seconds)
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
        self.source.poll_once()
        self.source.wait_for_listings(self.manager.names())


@pytest.fixture
def web_server(tmp_path: Path) -> Iterator[WebServer]:
    (tmp_path / "site").mkdir()
    with serve_directory(tmp_path / "site") as web_server:
        yield web_server


@pytest.fixture
def models(tmp_path: Path, web_server: WebServer) -> Iterator[Models]:
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


def test_a_lazy_version_is_downloaded_once_by_its_first_request(
    tmp_path: Path, web_server: WebServer
) -> None:
    residency = Residency()
    residency.configure(["half"])
    models = Models(tmp_path, web_server, residency=residency)
    write_version(models.site / "half" / "1", "first")
    models.config_manager.start(models.config("half"))
    assert not models.cache.exists()
    with models.manager.get_servable_handle("half") as servable:
        assert servable.version == 1
    assert models.manager.unload_idle("half")
    models.wait(lambda: models.manager.status("half", 1)[0].state is State.START)
    shutil.rmtree(models.site / "half")
    with models.manager.get_servable_handle("half"):
        assert models.loaded_texts == ["first", "first"]
    models.manager.close(60)


def test_a_base_path_is_listed_again_after_no_thread_could_list_it(models: Models) -> None:
    write_version(models.site / "half" / "1")
    models.config_manager.start(models.config("half"))
    write_version(models.site / "half" / "2")
    with no_new_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
        models.source.poll_once()
    models.poll()
    models.wait(lambda: models.manager.is_available("half", 2))


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
    models.source.set_models((*models.config("slow", "half").models, local))
    for name in ("local", "half"):
        models.wait(lambda: models.manager.is_available(name))  # noqa: B023
    may_continue.set()
    models.wait(lambda: models.manager.is_available("slow"))


@pytest.fixture
def impatient_models(tmp_path: Path, web_server: WebServer) -> Iterator[Models]:
    """Models whose listings are awaited for half a second."""
    models = Models(tmp_path, web_server, 0.5)
    yield models
    models.manager.close(60)


@pytest.fixture
def silent_paths(web_server: WebServer) -> Iterator[set[str]]:
    """Return the paths that the web server does not answer before the end of the test."""
    paths: set[str] = set()
    may_continue = threading.Event()

    def hold(path: str) -> None:
        if path in paths:
            assert may_continue.wait(120)

    web_server.before_get = hold
    yield paths
    may_continue.set()


def test_reload_does_not_wait_for_storage_that_does_not_answer(
    impatient_models: Models, silent_paths: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    models = impatient_models
    for name in ("half", "slow", "new"):
        write_version(models.site / name / "1")
    silent_paths.add("/slow/SHA256SUMS")
    models.source.set_models(models.config("half").models)
    models.wait(lambda: models.manager.is_available("half"))
    reason = r"name: slow} due to error: UNAVAILABLE: .*/slow was not listed within 0.5 s\."
    for names in (("half", "slow"), ("half", "slow", "new")):
        with pytest.raises(ModelsNotAvailable, match=reason):
            models.config_manager.reload(models.config(*names))
    models.wait(lambda: models.manager.is_available("new"))
    assert models.manager.is_available("half")
    lines = [line for line in caplog.messages if "base path http" in line and "/slow for" in line]
    assert len(lines) == 1


def test_versions_stay_loaded_while_storage_does_not_answer(
    impatient_models: Models, silent_paths: set[str]
) -> None:
    models = impatient_models
    write_version(models.site / "half" / "1")
    models.source.set_models(models.config("half").models)
    models.wait(lambda: models.manager.is_available("half"))
    silent_paths.add("/half/SHA256SUMS")
    models.poll()
    assert "not listed within 0.5 s" in str(models.manager.unavailable_reason("half"))
    assert models.manager.is_available("half", 1)
    with pytest.raises(Unavailable, match="not listed within 0.5 s"):
        models.source.find_versions(models.config("half").models[0])


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


def test_load_on_request_waits_for_a_new_download(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The manager itself retries the download after an hour.
    monkeypatch.setattr(manager, "_FIRST_RETRY_SECONDS", 3600)
    monkeypatch.setattr(models.manager, "_retries", Retries(count=0, interval_seconds=3600))
    write_version(models.site / "half" / "1")
    models.web_server.cut_paths.add("/half/1/saved_model.pb")
    with pytest.raises(ModelsNotAvailable, match="due to error: .*/half/1/"):
        models.config_manager.reload(models.config("half"))
    models.web_server.cut_paths.clear()
    models.config_manager.load_model("half")
    assert models.manager.is_available("half", 1)


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


class _Exporter(KerasExporter):
    """Writes what the file says in place of an export, and refuses a file that says so."""

    def export(
        self, file: Path, target: Path, is_cancelled: Callable[[], bool], origin: str = ""
    ) -> None:
        text = file.read_text()
        if text == "own code":
            raise ModelFileRefused(f"{origin or file} needs a class.", Code.FAILED_PRECONDITION)
        shutil.rmtree(target, ignore_errors=True)
        write_version(target, text)


@pytest.fixture
def exporting(tmp_path: Path, web_server: WebServer) -> Iterator[Models]:
    models = Models(tmp_path, web_server, exporter=_Exporter(0, refuse_links))
    yield models
    models.manager.close(60)


def refuse_links(directory: Path) -> None:
    if any(path.is_symlink() for path in directory.iterdir()):
        raise ModelFileRefused(f"{directory} has a link.", Code.PERMISSION_DENIED)


def configure(base_path: str) -> ModelServerConfig:
    return ModelServerConfig((ModelConfig("m", base_path),))


def test_keras_file_is_replaced_when_its_content_has_changed(exporting: Models) -> None:
    file = exporting.site / "m.keras"
    file.write_text("first")
    exporting.config_manager.start(configure(str(file)))
    assert exporting.manager.is_available("m", 1)
    file.write_text("the second")
    while exporting.loaded_texts != ["first", "the second"]:
        exporting.poll()
    file.write_text("own code")
    while exporting.manager.status("m")[0].state is not State.END:
        exporting.poll()
    # The old content answers, and the refused one is not tried again until the file changes.
    assert exporting.manager.is_available("m", 1)
    exporting.poll()
    assert exporting.loaded_texts == ["first", "the second"]


@pytest.mark.parametrize("path", ["7.keras", "versions"])
def test_keras_file_of_a_web_server_is_exported(exporting: Models, path: str) -> None:
    (exporting.site / "versions" / "7").mkdir(parents=True)
    for name in ("7.keras", "versions/7/m.keras"):
        (exporting.site / name).write_text("graph")
    exporting.config_manager.start(configure(f"{exporting.web_server.uri}/{path}"))
    assert exporting.manager.is_available("m", 7)


def test_error_of_a_downloaded_keras_file_has_its_address(exporting: Models) -> None:
    (exporting.site / "m.keras").write_text("own code")
    uri = f"{exporting.web_server.uri}/m.keras"
    with pytest.raises(ModelsNotAvailable, match=f"FAILED_PRECONDITION: {uri} needs a class"):
        exporting.config_manager.start(configure(uri))


def test_link_is_refused_in_a_version_directory_and_taken_as_a_base_path(
    exporting: Models,
) -> None:
    (exporting.site / "versions" / "1").mkdir(parents=True)
    for link in ("link.keras", "versions/1/m.keras"):
        file = exporting.site / link.replace("/", "-")
        (exporting.site / link).symlink_to(file.with_suffix(".target"))
        file.with_suffix(".target").write_text(link)
    exporting.config_manager.start(configure(str(exporting.site / "link.keras")))
    with pytest.raises(ModelsNotAvailable, match="PERMISSION_DENIED: .*/1 has a link"):
        exporting.config_manager.reload(configure(str(exporting.site / "versions")))
