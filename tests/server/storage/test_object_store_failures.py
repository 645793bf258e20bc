"""Object stores that cut, change or refuse what they send: nothing is loaded, and the log says why.

`test_credentials.py` has the errors of each store's credentials.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from server.storage.remote_models import RemoteModels
from tests.server.storage import stores
from tests.server.storage.stores import NAME, Store, versions
from tests.server.storage.web_server import (
    WebServer,
    check_cancelled_download,
    write_version,
)
from tpuserve.errors import BasePathNotFound, CodedError, TpuserveError, Unavailable

DATA_FILE = f"{NAME}/models/1/variables/variables.data"


@pytest.fixture(scope="module", params=["az", "hf"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    with stores.start(request.param, tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture
def web_server(store: Store, tmp_path: Path) -> Iterator[WebServer]:
    """The server of the store, which has a version at `models/1`."""
    write_version(tmp_path / "1")
    store.upload(tmp_path / "1", "models/1")
    server = store.web_server
    assert server is not None
    yield server
    server.reset()


def url_path(store: Store) -> str:
    """Return the path in the URL of the data file."""
    if store.scheme == "az":
        return f"/account/{DATA_FILE}"
    return f"/{DATA_FILE.replace('models', 'models/resolve/main')}"


def cut(server: WebServer, path: str) -> None:
    # The hub's library waits 23 seconds in all before it gives up connections that end too early.
    paths = server.cut_paths if path.startswith("/account") else server.short_paths
    paths.add(path)


def change(server: WebServer, path: str) -> None:
    def change_file(requested_path: str) -> None:
        # A request for another file must not empty this file while its content is sent.
        if requested_path == path:
            (server.directory / DATA_FILE).write_bytes(b"\1" * 100_000)

    server.before_get = change_file


def refuse(server: WebServer, path: str) -> None:
    server.refused_paths.add(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        (cut, (CodedError, Unavailable), "(50000|99999) "),
        (change, CodedError, r"has the (md5|sha256) \w+ in the listing"),
        (refuse, CodedError, r"with the credentials of this server: .*[Ss]et "),
    ],
)
def test_version_whose_file_is_cut_changed_or_refused_is_not_kept(
    store: Store,
    web_server: WebServer,
    remote_models: RemoteModels,
    cache_directory: Path,
    fault: Callable[[WebServer, str], None],
    error: type[TpuserveError],
    text: str,
) -> None:
    (directory,) = versions(store.uri("models"), remote_models).values()
    fault(web_server, url_path(store))
    uri = store.uri("models/1/variables/variables.data")
    with pytest.raises(error, match=f"^{uri} .*{text}") as caught:
        remote_models.fetch(directory, lambda: False)
    assert "\n" not in str(caught.value)
    assert [path.name for path in cache_directory.iterdir()] == ["lock"]


def test_download_ends_when_its_version_is_no_longer_needed(
    store: Store, web_server: WebServer, remote_models: RemoteModels
) -> None:
    (directory,) = versions(store.uri("models"), remote_models).values()
    check_cancelled_download(web_server, remote_models, directory)


def test_path_without_a_repository_is_told(remote_models: RemoteModels) -> None:
    with pytest.raises(BasePathNotFound, match=r"hf://half is no path of the hub: .* hf://USER/R"):
        versions("hf://half", remote_models)
