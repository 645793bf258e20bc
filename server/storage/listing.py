"""Lists the version directories of a remote base path, and the files of a version."""

import base64
import html
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urljoin

from server.storage.download import Checksum, RemoteFile, RemoteVersion
from server.storage.file_systems import open_file_system, scheme_of, translated_errors
from server.storage.keras_files import SUFFIX
from tpuserve.errors import (
    BasePathNotFound,
    InvalidConfig,
    ModelTooLarge,
    Unavailable,
    VersionNotFound,
)

INDEX_FILE = "SHA256SUMS"
"""The name of a file in sha256sum's format, which replaces the listing pages of a web server."""

_INDEX_LINE = re.compile(r"(?P<digest>[0-9a-f]{64}) [ *](?P<path>\S.*)")
_WEB_SCHEMES = ("http", "https")
# Matches a link in the listing page of a web server.
_LINK = re.compile(r"""\shref=["']([^"'<>]{1,2048})["']""", re.IGNORECASE)
# The largest number of entries of a version on a web server, and the deepest level of its
# directories.
_MAX_ENTRIES, _MAX_DEPTH = 10_000, 32
# The time limit of all listings of a `RemoteDirectory` together, in seconds.
_MAX_SECONDS = 600.0
# The keys under which the fsspec file systems store a text that changes with the content of a file,
# such as an ETag. The first key that a file has is used.
_IDENTITIES = (
    "ETag",
    "etag",
    "blob_id",
    "md5Hash",
    "Content-MD5",
    "LastModified",
    "last_modified",
    "Last-Modified",
)


class RemoteDirectory:
    """A base path in remote storage, whose versions and files can be listed.

    All listings together have a time limit, which starts when the object is created.

    Args:
      uri: the URI of the base path, such as "s3://bucket/models/half".
      max_seconds: the time limit of all listings together, in seconds.
    """

    def __init__(self, uri: str, max_seconds: float = _MAX_SECONDS) -> None:
        self._max_seconds = max_seconds
        self._end = time.monotonic() + max_seconds
        self._uri = uri.rstrip("/")
        self._file_system = open_file_system(uri)
        self._is_web = scheme_of(uri) in _WEB_SCHEMES

    @property
    def file_system(self) -> Any:
        """The fsspec file system that holds the base path."""
        return self._file_system

    def with_new_time_limit(self) -> "RemoteDirectory":
        """Return a new object for the same base path, whose time limit starts now."""
        return RemoteDirectory(self._uri, self._max_seconds)

    def list_names(self) -> tuple[list[str], list[str]]:
        """Return two sorted lists: the names of the directories and of the files in the base path.

        Raises:
          InvalidConfig: a line of the file SHA256SUMS in the base path is not valid.
          CodedError: a path in SHA256SUMS points outside of the base path.
        """
        index = self._index()
        if index is None:
            entries = {(name, is_parent) for name, is_parent, _ in self._entries(self._uri)}
        else:
            parts = [PurePosixPath(file.path).parts for file in index]
            entries = {(names[0], len(names) > 1) for names in parts}
        directories = sorted(name for name, is_parent in entries if is_parent)
        return directories, sorted(name for name, is_parent in entries if not is_parent)

    def list_version(self, name: str, number: int) -> RemoteVersion:
        """List all files of a version.

        Args:
          name: the name of the version's directory; "" if the base path itself is the version,
            which may then be a .keras file.

        Raises:
          CodedError: the path of a file points outside of the version's directory.
          ModelTooLarge: a web server or the file SHA256SUMS lists too many files, or directories
            that are nested too deep.
          InvalidConfig: a line of the file SHA256SUMS in the base path is not valid.
        """
        uri = f"{self._uri}/{name}" if name else self._uri
        if uri.endswith(SUFFIX):
            with translated_errors(uri):
                info = self._call("info", uri)
            return RemoteVersion(
                uri, number, (_remote_file(unquote(PurePosixPath(uri).name), uri, info),)
            )
        index = self._index()
        if index is not None:
            files = [
                RemoteFile(path, file.url, file.size, file.identity, file.checksum)
                for file in index
                if (path := _path_below(file.path, name))
            ]
            if len(files) > _MAX_ENTRIES:
                raise ModelTooLarge(
                    f"{INDEX_FILE} lists {len(files)} files of {uri}, and a version may have "
                    f"{_MAX_ENTRIES}. Remove what is no file of the model."
                )
        elif self._is_web:
            files = list(self._walk(uri))
        else:
            files = self._find(uri)
        if not files:
            raise VersionNotFound(f"{uri} has no files. Upload the version again.")
        return RemoteVersion(uri, number, tuple(sorted(files, key=lambda file: file.path)))

    def _find(self, uri: str) -> list[RemoteFile]:
        with translated_errors(uri):
            prefix = self._file_system._strip_protocol(uri).rstrip("/") + "/"
            infos = self._call("find", uri, detail=True)
        return [
            _remote_file(name := path.removeprefix(prefix), f"{uri}/{name}", info)
            for path, info in infos.items()
            if info.get("type") == "file" and not path.endswith("/")
        ]

    def _walk(self, uri: str) -> Iterator[RemoteFile]:
        """Yield all files below a directory of a web server, from its listing pages."""
        directories, num_entries = [(uri, "")], 0
        while directories:
            url, parent = directories.pop()
            for name, is_directory, address in self._entries(url):
                path = parent + name
                num_entries += 1
                if num_entries > _MAX_ENTRIES or path.count("/") > _MAX_DEPTH:
                    raise ModelTooLarge(
                        f"{uri} lists more than {_MAX_ENTRIES} files, or directories deeper than "
                        f"{_MAX_DEPTH}. Remove what is no file of the model."
                    )
                if is_directory:
                    directories.append((address.rstrip("/"), path + "/"))
                    continue
                with translated_errors(address):
                    info = self._call("info", address)
                yield _remote_file(path, address, info)

    def _entries(self, uri: str) -> Iterator[tuple[str, bool, str]]:
        if self._is_web:
            yield from self._linked_entries(uri)
            return
        with translated_errors(uri):
            infos = self._call("ls", uri, detail=True)
        for info in infos:
            path = info["name"]
            yield path.rstrip("/").rpartition("/")[2], info["type"] == "directory", path

    def _linked_entries(self, uri: str) -> Iterator[tuple[str, bool, str]]:
        # Append a slash: without it, some web servers do not send the directory's listing page.
        address = uri + "/"
        with translated_errors(uri):
            page = self._call("cat_file", address).decode("utf-8", "replace")
            links = {urljoin(address, html.unescape(link)) for link in _LINK.findall(page)}
        for path in sorted(links):
            name = path.removeprefix(address).rstrip("/")
            # Use only links to the entries of this directory. Other links on the page point to
            # other directories, change its sort order, or point to the page itself.
            if path.startswith(address) and name and not set("/?#") & set(name):
                yield unquote(name), path.endswith("/"), path

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the fsspec file system, and wait for its result until the time limit."""
        from fsspec import FSTimeoutError
        from fsspec.asyn import sync

        remaining = self._end - time.monotonic()
        if remaining > 0:
            if not self._file_system.async_impl:
                # This is the file system of huggingface_hub. Call its method without a time limit,
                # because huggingface_hub has its own time limits.
                return getattr(self._file_system, method)(*args, **kwargs)
            coroutine = getattr(self._file_system, f"_{method}")
            try:
                return sync(self._file_system.loop, coroutine, *args, timeout=remaining, **kwargs)
            except FSTimeoutError:
                if time.monotonic() < self._end:
                    raise
        raise Unavailable(
            f"{self._uri} was not listed within {self._max_seconds:g} s. The server tries again; "
            f"check the address and the network."
        )

    def _index(self) -> list[RemoteFile] | None:
        """Return the files that the index file SHA256SUMS of a base path on a web server lists."""
        if not self._is_web:
            return None
        url = f"{self._uri}/{INDEX_FILE}"
        try:
            with translated_errors(url):
                text = self._call("cat_file", url).decode("utf-8", "replace")
        except BasePathNotFound:
            return None
        return [self._indexed_file(line, url) for line in text.splitlines() if line.strip()]

    def _indexed_file(self, line: str, url: str) -> RemoteFile:
        match = _INDEX_LINE.fullmatch(line)
        if match is None:
            raise InvalidConfig(
                f"{url} has the line {line[:80]!r}, and each line must be a SHA-256, two spaces "
                f"and a path. Write the file with sha256sum."
            )
        path = match["path"].removeprefix("./")
        return RemoteFile(
            path, f"{self._uri}/{path}", None, "", Checksum("sha256", match["digest"])
        )


def _path_below(path: str, directory: str) -> str:
    if not directory:
        return path
    return path.removeprefix(directory + "/") if path.startswith(directory + "/") else ""


def _remote_file(path: str, url: str, info: Mapping[str, Any]) -> RemoteFile:
    identity = next((str(info[key]) for key in _IDENTITIES if info.get(key)), "")
    size = info.get("size")
    return RemoteFile(path, url, size if size is None else int(size), identity, _checksum(info))


def _checksum(info: Mapping[str, Any]) -> Checksum | None:
    lfs = info.get("lfs")
    if lfs:
        digest = getattr(lfs, "sha256", None) or dict(lfs).get("sha256")
        return Checksum("sha256", str(digest)) if digest else None
    if info.get("md5Hash"):
        return Checksum("md5", base64.b64decode(info["md5Hash"]).hex())
    # adlfs, the file system for Azure, has the MD5 as bytes in an attribute of an object.
    digest = getattr(info.get("content_settings"), "content_md5", None)
    return Checksum("md5", bytes(digest).hex()) if digest else None
