"""A web server of a directory, which can cut, change or refuse what it sends."""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from server.storage.remote_models import RemoteModels
from tpuserve.errors import TpuserveError


class WebServer(ThreadingHTTPServer):
    """An HTTP server of a directory, which tests can set to send damaged or no files.

    Attributes:
      directory: the directory of the files.
      cut_paths: the paths of which the server sends the first half, and then closes the connection.
      short_paths: the paths of which the server sends the first half as if it were the whole file.
        Only a `StoreHandler` does so.
      refused_paths: the paths that the server refuses with the HTTP status 403.
      sent_paths: the paths that were requested.
      before_get: is called with a path before the server sends its file.
    """

    daemon_threads = True

    def __init__(self, directory: Path, handler: Any = None) -> None:
        handler = handler or functools.partial(_Handler, directory=str(directory))
        super().__init__(("127.0.0.1", 0), handler)
        self.directory = directory
        self.reset()

    def reset(self) -> None:
        """Remove all faults."""
        self.cut_paths: set[str] = set()
        self.short_paths: set[str] = set()
        self.refused_paths: set[str] = set()
        self.sent_paths: list[str] = []
        self.before_get: Callable[[str], object] = lambda path: None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        server = cast(WebServer, self.server)
        server.before_get(self.path)
        server.sent_paths.append(self.path)
        if self.path in server.refused_paths:
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path in server.cut_paths:
            content = Path(self.translate_path(self.path)).read_bytes()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        else:
            super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def serve_directory(directory: Path, handler: Any = None) -> Iterator[WebServer]:
    """Serve a directory by HTTP.

    Args:
      directory: the directory.
      handler: the class of the request handlers; None for plain files and listing pages.
    """
    with WebServer(directory, handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def write_version(directory: Path, text: str = "graph") -> None:
    """Write files with the names of a SavedModel's files."""
    (directory / "variables").mkdir(parents=True)
    (directory / "saved_model.pb").write_text(text)
    (directory / "variables" / "variables.index").write_bytes(b"")
    (directory / "variables" / "variables.data").write_bytes(bytes(100_000))


def check_cancelled_download(
    web_server: WebServer, remote_models: RemoteModels, directory: Path
) -> None:
    """Download a version that is cancelled at its first file; check that the download ends."""
    is_cancelled = False

    def cancel(path: str) -> None:
        nonlocal is_cancelled
        is_cancelled = True

    web_server.before_get = cancel
    with pytest.raises(TpuserveError, match="cancelled"):
        remote_models.fetch(directory, lambda: is_cancelled)
    assert not directory.exists()
