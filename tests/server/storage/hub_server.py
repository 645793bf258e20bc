"""Serves a directory with the HTTP API of the Hugging Face Hub.

The server has the operations that a reader of models needs: the information about a repository, and
the tree and the files of its revision `main`.
Source: huggingface.co/docs/hub/api.
"""

import hashlib
import json
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.server.storage.store_handler import PAGE_ENTRIES, StoreHandler

TOKEN = "hf_token"
"""The token that the server accepts; requests without a token are accepted too."""

LFS_BYTES = 1000
"""The size in bytes from which files are in Git LFS, so that the tree has their SHA-256."""


class HubHandler(StoreHandler):
    """Serves each directory two levels below the server's directory as a repository of a user."""

    def do_GET(self) -> None:
        parts = self.url_path.strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        user, repository, kind, *rest = [*(parts[2:] if is_api else parts), ""]
        root = self.web_server.directory / user / repository
        file = root.joinpath(*rest[1:])
        if self.headers.get("Authorization", f"Bearer {TOKEN}") != f"Bearer {TOKEN}":
            text = "Invalid credentials in Authorization header"
            self._answer_error(HTTPStatus.UNAUTHORIZED, X_Error_Message=text)
        elif self.url_path in self.web_server.refused_paths:
            self._answer_error(HTTPStatus.FORBIDDEN, X_Error_Code="GatedRepo")
        elif not root.is_dir():
            self._answer_error(HTTPStatus.UNAUTHORIZED, X_Error_Code="RepoNotFound")
        elif kind == "tree" and file.is_dir():
            self._answer_tree(root, file)
        elif is_api and kind in ("", "revision"):
            self._answer_json({"id": f"{user}/{repository}", "sha": "0" * 40, "siblings": []})
        elif kind == "resolve" and file.is_file():
            self.answer_file(file, ETag=f'"{_oid(file.read_bytes())}"', X_Repo_Commit="0" * 40)
        else:
            self._answer_error(HTTPStatus.NOT_FOUND, X_Error_Code="EntryNotFound")

    do_HEAD = do_GET

    def _answer_tree(self, root: Path, directory: Path) -> None:
        pattern = "**/*" if self.query.get("recursive", "").lower() in ("1", "true") else "*"
        paths = sorted(directory.glob(pattern))
        begin = int(self.query.get("cursor", 0))
        headers = {}
        if begin + PAGE_ENTRIES < len(paths):
            base = self.path.partition("&cursor=")[0].partition("?cursor=")[0]
            joint = "&" if "?" in base else "?"
            url = f"{self.web_server.uri}{base}{joint}cursor={begin + PAGE_ENTRIES}"
            headers["Link"] = f'<{url}>; rel="next"'
        page = paths[begin : begin + PAGE_ENTRIES]
        self._answer_json([_entry(path, root) for path in page], **headers)

    def _answer_json(self, value: Any, **headers: Any) -> None:
        self.answer(json.dumps(value).encode(), Content_Type="application/json", **headers)

    def _answer_error(self, status: int, **headers: Any) -> None:
        text = json.dumps({"error": "The request failed."}).encode()
        request = f"Root=1-{time.monotonic_ns()}"
        self.answer(text, status, Content_Type="application/json", X_Request_Id=request, **headers)


def _entry(path: Path, root: Path) -> dict[str, Any]:
    name = str(path.relative_to(root))
    if path.is_dir():
        return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
    content = path.read_bytes()
    entry = {"type": "file", "oid": _oid(content), "size": len(content), "path": name}
    if len(content) >= LFS_BYTES:
        digest = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 134}
    return entry


def _oid(content: bytes) -> str:
    """Return the object id of a file's content in Git: a SHA-1 digest."""
    data = b"blob %d\0%b" % (len(content), content)
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
