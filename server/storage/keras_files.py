"""Finds .keras files that are served as they are, and notices their changes."""

import hashlib
from pathlib import Path
from typing import TypeAlias

from tpuserve import __version__
from tpuserve.saved_model import proto_file

SUFFIX = ".keras"
# The files of other models, which are served even if a .keras file is beside them.
_OTHER_MODELS = (*proto_file.NAMES, "model.tflite")
_Stamp: TypeAlias = tuple[int, int, int]


def find_keras_file(directory: Path) -> Path | None:
    """Return the only .keras file in the directory of a version.

    None if the directory has another model, or no .keras file, or several.
    """
    if any((directory / name).is_file() for name in _OTHER_MODELS):
        return None
    files = list(directory.glob(f"*{SUFFIX}"))
    return files[0] if len(files) == 1 and files[0].is_file() else None


class FileDigests:
    """Computes digests of files, each again only after its file has changed."""

    def __init__(self) -> None:
        # File → (stamp at the computation of the digest, stamp at the last call, digest).
        self._known: dict[Path, tuple[_Stamp | None, _Stamp, str]] = {}

    def find(self, file: Path) -> str:
        """Return a text that changes with the content of a file, and with the version of tpuserve.

        A file that has changed keeps its digest until two calls in a row find it unchanged: until
        then it may not be written completely.
        """
        now = _stamp(file)
        at_digest, at_last_call, digest = self._known.get(file, (None, now, ""))
        if now != at_digest and now == at_last_call:
            at_digest, digest = now, digest_of(file)
        self._known[file] = (at_digest, now, digest)
        return digest


def digest_of(file: Path) -> str:
    """Return the digest that `FileDigests` has for the present content of a file."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256")
    digest.update(__version__.encode())
    return f"keras-{digest.hexdigest()[:32]}"


def _stamp(file: Path) -> _Stamp:
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
