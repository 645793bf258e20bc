"""Defines the request handler that the servers of Azure's and the hub's protocols extend."""

import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.server.storage.web_server import WebServer

PAGE_ENTRIES = 2
"""The number of entries in a page of a listing: few, so that most listings have several pages."""


class StoreHandler(BaseHTTPRequestHandler):
    """Answers requests for the files below the directory of a `WebServer`."""

    protocol_version = "HTTP/1.1"

    @property
    def web_server(self) -> WebServer:
        return cast(WebServer, self.server)

    @property
    def url_path(self) -> str:
        return unquote(urlsplit(self.path).path)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))

    def parse_request(self) -> bool:
        is_valid = super().parse_request()
        if is_valid:
            self.web_server.sent_paths.append(self.url_path)
        return is_valid

    def answer(self, body: bytes, status: int = HTTPStatus.OK, **headers: Any) -> None:
        """Send a response; an underscore in the name of a header stands for a hyphen."""
        self._begin(status, len(body), headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_file(self, file: Path, **headers: Any) -> None:
        """Send a file, or the range of bytes that the request names.

        The faults that are set in the `WebServer` apply.
        """
        self.web_server.before_get(self.url_path)
        content = file.read_bytes()
        size, status = len(content), HTTPStatus.OK
        span = self.headers.get("x-ms-range") or self.headers.get("Range")
        if span and not content:
            self.answer(b"", HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            return
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", span or "")
        if match:
            first, last = match.groups()
            content = content[int(first) : int(last) + 1 if last else size]
            status = HTTPStatus.PARTIAL_CONTENT
            end = int(first) + len(content) - 1
            headers["Content_Range"] = f"bytes {first}-{end}/{size}"
        if self.url_path in self.web_server.short_paths:
            content = content[: len(content) // 2]
        self._begin(status, len(content), headers)
        if self.command == "HEAD":
            return
        if self.url_path in self.web_server.cut_paths:
            content = content[: len(content) // 2]
            self.close_connection = True
        self.wfile.write(content)

    def _begin(self, status: int, size: int, headers: dict[str, Any]) -> None:
        self.send_response(status)
        for name, value in {"Content_Length": size, **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
