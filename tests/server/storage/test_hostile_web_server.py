"""A web server that sends without an end, or links in circles, does no harm."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from server.config.model_config import AllPolicy, ModelConfig
from server.models.file_system_source import RemoteRepository
from server.storage.download import RemoteVersion, VersionDownload
from server.storage.listing import RemoteDirectory
from server.storage.model_cache import ModelCache
from server.storage.remote_models import RemoteModels
from tpuserve.errors import Code, CodedError, ModelTooLarge, TpuserveError, Unavailable

ENDLESS = 1 << 30
"""More bytes than a test can send in reasonable time; sent in chunks until the client leaves."""


class _Handler(BaseHTTPRequestHandler):
    pages: Callable[[str], str | int | None]

    def do_HEAD(self) -> None:
        self.send_response(404 if type(self).pages(self.path) is None else 200)
        if not self.path.endswith("unknown_size"):
            self.send_header("Content-Length", "5")
        self.end_headers()

    def do_GET(self) -> None:
        page = type(self).pages(self.path)
        self.send_response(404 if page is None else 200)
        self.end_headers()
        try:
            if isinstance(page, str):
                self.wfile.write(page.encode())
            for _ in range(page // 2**16 if isinstance(page, int) else 0):
                self.wfile.write(bytes(2**16))
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[str], str | int | None]], str]]:
    """Return a function that takes path → page or number of bytes, and returns a URI."""
    servers = []

    def start(pages: Callable[[str], str | int | None]) -> str:
        handler = type("_Pages", (_Handler,), {"pages": staticmethod(pages)})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/half"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


Serve = Callable[[Callable[[str], str | int | None]], str]


def list_and_fetch(uri: str, models: RemoteModels) -> set[str]:
    """Return the paths of the files of the only version."""
    model = ModelConfig("half", uri, AllPolicy())
    (directory,) = RemoteRepository(model, models).aspired_versions().values()
    models.fetch(directory, lambda: False).close()
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("link", ["./", "/half/1/", "/half/", "../", "../1/", "//other/1/", "?C=N"])
def test_links_to_other_directories_are_not_followed(
    serve: Serve, remote_models: RemoteModels, link: str
) -> None:
    pages = {
        "/half/": f'<a href="{link}">up</a> <a href="./1/">1</a>',
        "/half/1/": f"<a href=\"{link}\">up</a> <A HREF='saved_model.pb'>graph</A>",
        "/half/1/saved_model.pb": "graph",
    }
    assert list_and_fetch(serve(pages.get), remote_models) == {"saved_model.pb"}


@pytest.mark.parametrize(
    "link", ["..%2f..%2fx", "%2fetc%2fx", "a%00b", "%2e"], ids=["up", "root", "zero", "dot"]
)
def test_names_that_lead_out_of_the_version_are_refused(
    serve: Serve, remote_models: RemoteModels, link: str
) -> None:
    pages = {"/half/": '<a href="1/">', "/half/1/": f'<a href="{link}">'}
    uri = serve(lambda path: pages.get(path, None if path.endswith("SHA256SUMS") else "graph"))
    with pytest.raises(TpuserveError, match="leads out of the model|has no files"):
        list_and_fetch(uri, remote_models)


def test_directories_without_an_end_are_refused(serve: Serve, remote_models: RemoteModels) -> None:
    uri = serve(lambda path: '<a href="1/">deeper</a>' if path.endswith("/") else None)
    with pytest.raises(ModelTooLarge, match="lists more than 10000 files, or directories deeper"):
        list_and_fetch(uri, remote_models)


def test_page_that_parsers_read_slowly_is_read_at_once(
    serve: Serve, remote_models: RemoteModels
) -> None:
    pages = {
        "/half/": "<a " * 100_000 + " " * 100_000 + ' href="1/">',
        "/half/1/": '<a href="saved_model.pb">',
        "/half/1/saved_model.pb": "graph",
    }
    assert list_and_fetch(serve(pages.get), remote_models) == {"saved_model.pb"}


@pytest.mark.parametrize("name", ["", "SHA256SUMS"])
def test_page_without_an_end_is_not_read(
    serve: Serve, remote_models: RemoteModels, name: str
) -> None:
    uri = serve(lambda path: ENDLESS if path == f"/half/{name}" else None)
    with pytest.raises(Unavailable, match="the page has more than 4194304 bytes"):
        list_and_fetch(uri, remote_models)


def test_download_ends_at_the_listed_size(serve: Serve, remote_models: RemoteModels) -> None:
    pages: dict[str, str | int] = {
        "/half/": '<a href="1/">',
        "/half/1/": '<a href="saved_model.pb">',
        "/half/1/saved_model.pb": ENDLESS,
    }
    with pytest.raises(
        CodedError,
        match=r"has 5 bytes, and [0-9]{1,8} bytes arrived",
        check=lambda error: error.code is Code.DATA_LOSS,
    ):
        list_and_fetch(serve(pages.get), remote_models)


def test_download_of_unknown_size_ends_at_the_limit_of_the_cache(
    serve: Serve, cache_directory: Path
) -> None:
    pages: dict[str, str | int] = {
        "/half/": '<a href="1/">',
        "/half/1/": '<a href="unknown_size">',
        "/half/1/unknown_size": ENDLESS,
    }
    models = RemoteModels(ModelCache(cache_directory, 1_000_000))
    with pytest.raises(
        CodedError,
        match="/half/1 has more bytes than --model_cache_max_bytes",
        check=lambda error: error.code is Code.RESOURCE_EXHAUSTED,
    ):
        list_and_fetch(serve(pages.get), models)
    assert [path.name for path in cache_directory.iterdir()] == ["lock"]


def test_download_of_less_than_a_kilobyte_a_second_ends() -> None:
    times = iter([0.0, 299.0, 300.0, 600.0])
    version = RemoteVersion("http://host/half/1", 1, ())
    download = VersionDownload(None, version, lambda: False, clock=lambda: next(times))
    for received in (1, 300_001):
        download._note_progress("data", received)
    with pytest.raises(Unavailable, match=r"/half/1 sent 299999 bytes in 300 s\."):
        download._note_progress("data", 600_000)


def test_listing_of_a_server_that_never_answers_ends(serve: Serve) -> None:
    may_answer = threading.Event()

    def hold(path: str) -> None:
        may_answer.wait(120)

    directory = RemoteDirectory(serve(hold), max_seconds=0.5)
    try:
        with pytest.raises(Unavailable, match=r"/half was not listed within 0\.5 s"):
            directory.list_names()
    finally:
        may_answer.set()
