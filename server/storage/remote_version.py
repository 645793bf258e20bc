"""Describes the files of a model version in remote storage, from a listing of the storage."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import PurePosixPath

from tpuserve.errors import Code, CodedError

_FINGERPRINT_DIGITS = 32


@dataclass(frozen=True)
class Checksum:
    """The checksum of a file's content, in the listing of the storage."""

    algorithm: str
    digest: str


@dataclass(frozen=True)
class RemoteFile:
    """A file of a model version in remote storage.

    Attributes:
      path: the path relative to the version's directory, such as "variables/variables.index".
      size: the size in bytes; None if the listing does not have it.
      identity: a text that changes with the content of the file, such as an ETag; empty if the
        listing does not have one.
      checksum: the checksum of the content; None if the listing does not have it.

    Raises:
      CodedError: the path points outside of the version's directory, is empty, or contains a null
        character.
    """

    path: str
    url: str
    size: int | None
    identity: str = ""
    checksum: Checksum | None = None

    def __post_init__(self) -> None:
        parts = PurePosixPath(self.path).parts
        if not parts or ".." in parts or self.path.startswith("/") or "\0" in self.path:
            raise CodedError(
                f"{self.url} has the path {self.path!r}, which leads out of the model. Remove the "
                f"file from the storage.",
                Code.PERMISSION_DENIED,
            )


@dataclass(frozen=True)
class RemoteVersion:
    """A version of a model in remote storage, with its files."""

    uri: str
    number: int
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """The size of all files together, in bytes; a file of unknown size counts as 0 bytes."""
        return sum(file.size or 0 for file in self.files)

    @property
    def fingerprint(self) -> str:
        """A text that differs between versions with different URIs or contents."""
        contents = [
            (file.path, file.size, file.identity, file.checksum and file.checksum.digest)
            for file in self.files
        ]
        text = json.dumps([self.uri, self.number, contents])
        return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT_DIGITS]
