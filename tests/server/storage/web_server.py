"""A web server of a directory, which can cut, change or refuse what it sends."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast


class WebServer(ThreadingHTTPServer):
    """Attributes: cut_paths are sent by half; before_get is called before a path is sent."""

    daemon_threads = True

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), functools.partial(_Handler, directory=str(directory)))
        self.cut_paths: set[str] = set()
        self.refused_paths: set[str] = set()
        self.sent_paths: list[str] = []
        self.before_get = lambda path: None

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
def serve_directory(directory: Path) -> Iterator[WebServer]:
    with WebServer(directory) as server:
        thread = threading.Thread(target=server.serve_forever)
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
