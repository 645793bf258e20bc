"""Serves a directory with the REST API of Azure Blob Storage, version 2019-12-12.

The server has the operations that a reader of blobs needs: List Blobs, Get Container Properties,
Get Blob and Get Blob Properties.
Source: learn.microsoft.com/rest/api/storageservices/blob-service-rest-api.
"""

import base64
import hashlib
import time
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.server.storage.store_handler import PAGE_ENTRIES, StoreHandler

ACCOUNT = "account"


def connection_string(uri: str) -> str:
    """Return the value of AZURE_STORAGE_CONNECTION_STRING for a server at an address."""
    key = base64.b64encode(b"key").decode()
    return f"AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={uri}/{ACCOUNT}"


class AzureHandler(StoreHandler):
    """Serves each directory below the server's directory as a container."""

    def do_GET(self) -> None:
        _, account, container, name = f"{self.url_path}/".split("/", 3)
        name = name.rstrip("/")
        root = self.web_server.directory / container
        if self.url_path in self.web_server.refused_paths or account != ACCOUNT:
            self._answer_error(HTTPStatus.FORBIDDEN, "AuthenticationFailed")
        elif not root.is_dir():
            self._answer_error(HTTPStatus.NOT_FOUND, "ContainerNotFound")
        elif self.query.get("comp") == "list":
            self.answer(self._list(root).encode(), Content_Type="application/xml")
        elif not name:
            self.answer(b"", Last_Modified=_last_modified(root), ETag='"0x1"')
        elif (root / name).is_file():
            self._answer_blob(root / name)
        else:
            self._answer_error(HTTPStatus.NOT_FOUND, "BlobNotFound")

    do_HEAD = do_GET

    def _list(self, root: Path) -> str:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter")
        blobs = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
        entries: dict[str, str] = {}
        for name in sorted(name for name in blobs if name.startswith(prefix)):
            directory, _, below = name[len(prefix) :].partition(delimiter or "\0")
            if delimiter and below:
                parent = f"{prefix}{directory}{delimiter}"
                entries[parent] = f"<BlobPrefix><Name>{escape(parent)}</Name></BlobPrefix>"
            else:
                properties = "".join(
                    f"<{key}>{value}</{key}>" for key, value in _properties(root / name).items()
                )
                entries[name] = (
                    f"<Blob><Name>{escape(name)}</Name><Properties>{properties}</Properties></Blob>"
                )
        names = [name for name in entries if name >= self.query.get("marker", "")]
        following = "".join(names[PAGE_ENTRIES : PAGE_ENTRIES + 1])
        return (
            '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="/" '
            f'ContainerName="{root.name}"><Prefix>{escape(prefix)}</Prefix><Blobs>'
            f"{''.join(entries[name] for name in names[:PAGE_ENTRIES])}</Blobs>"
            f"<NextMarker>{escape(following)}</NextMarker></EnumerationResults>"
        )

    def _answer_blob(self, file: Path) -> None:
        properties = _properties(file)
        self.answer_file(
            file,
            Last_Modified=properties["Last-Modified"],
            ETag=properties["Etag"],
            Content_MD5=properties["Content-MD5"],
            x_ms_blob_type=properties["BlobType"],
        )

    def _answer_error(self, status: int, code: str) -> None:
        text = (
            f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>The request '
            f"failed.\nRequestId:{time.monotonic_ns()}\nTime:{formatdate(usegmt=True)}</Message></Error>"
        )
        self.answer(text.encode(), status, Content_Type="application/xml", x_ms_error_code=code)


def _last_modified(path: Path) -> str:
    return formatdate(path.stat().st_mtime, usegmt=True)


def _properties(file: Path) -> dict[str, Any]:
    """Return the properties of a blob by their names in a listing."""
    content = file.read_bytes()
    digest = hashlib.md5(content, usedforsecurity=False).digest()
    return {
        "Last-Modified": _last_modified(file),
        "Etag": f'"0x{digest.hex()[:16]}"',
        "Content-Length": len(content),
        "Content-MD5": base64.b64encode(digest).decode(),
        "BlobType": "BlockBlob",
    }
