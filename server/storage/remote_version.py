"""The files of a version in remote storage, as a listing describes them."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import PurePosixPath

from tpuserve.errors import UnsafePath

_FINGERPRINT_DIGITS = 32


@dataclass(frozen=True)
class Checksum:
    """The checksum of a file's content.

    Attributes:
      algorithm: "md5" or "sha256".
      digest: the checksum in hexadecimal digits.
    """

    algorithm: str
    digest: str


@dataclass(frozen=True)
class RemoteFile:
    """A file of a version.

    Attributes:
      path: the path below the version, such as "variables/variables.index".
      url: the path that the file system opens.
      size: the size in bytes; None if the listing does not have it.
      identity: a text that changes with the content, such as an ETag; empty if there is none.
      checksum: the checksum of the content; None if the listing does not have it.

    Raises:
      UnsafePath: the path leads out of the version.
    """

    path: str
    url: str
    size: int | None
    identity: str = ""
    checksum: Checksum | None = None

    def __post_init__(self) -> None:
        parts = PurePosixPath(self.path).parts
        if not parts or ".." in parts or self.path.startswith("/") or "\0" in self.path:
            raise UnsafePath(
                f"{self.url} has the path {self.path!r}, which leads out of the model. Remove the "
                f"file from the storage."
            )


@dataclass(frozen=True)
class RemoteVersion:
    """A version of a model in remote storage.

    Attributes:
      uri: the URI of the version's directory.
      number: the version number.
      files: the files, sorted by path.
    """

    uri: str
    number: int
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """The size of all files in bytes; files of unknown size count as empty."""
        return sum(file.size or 0 for file in self.files)

    @property
    def fingerprint(self) -> str:
        """A text that differs for versions with other URIs or other contents."""
        contents = [
            (file.path, file.size, file.identity, file.checksum and file.checksum.digest)
            for file in self.files
        ]
        text = json.dumps([self.uri, self.number, contents])
        return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT_DIGITS]
