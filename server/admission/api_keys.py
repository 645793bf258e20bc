"""API keys, sent as bearer tokens."""

import hashlib
import hmac
import logging
import os
import threading
from pathlib import Path

from tpuserve.errors import InvalidSetting, Unauthenticated

_SCHEME = "bearer"
_REFUSAL = "this server requires a valid API key. Send the header 'Authorization: Bearer KEY'."

logger = logging.getLogger(__name__)


class ApiKeys:
    """The API keys of a file, one per line. Empty lines and lines that begin with # are skipped.

    The file is read again when it has changed. If reading fails, the previous keys stay valid.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file_signature: tuple[int, ...] = ()
        self._digests: tuple[bytes, ...] = ()
        if path is not None:
            try:
                self._file_signature = _file_signature(path)
                self._digests = _read_digests(path)
            except (OSError, ValueError) as error:
                raise InvalidSetting(
                    f"--api_keys_file: {path} cannot be used: {_reason(error)}. Provide a text "
                    f"file with one key per line."
                ) from error

    def authenticate(self, authorization: str | None) -> None:
        """Accept a request whose `Authorization` header carries one of the keys.

        Raises:
          Unauthenticated: The header is missing, names another scheme than Bearer, or carries
            an unknown key.
        """
        if self._path is None:
            return
        self._reload_if_changed(self._path)
        scheme, _, key = (authorization or "").strip().partition(" ")
        # Compare digests instead of the keys. All digests have the same length, so the duration of
        # the comparison reveals nothing about a key.
        sent = _digest(key.strip())
        # Compare the request's key with all valid keys, even after a match, so that the duration
        # does not reveal which key matched.
        matches = [hmac.compare_digest(sent, digest) for digest in self._digests]
        if scheme.lower() != _SCHEME or not any(matches):
            raise Unauthenticated(_REFUSAL)

    def _reload_if_changed(self, path: Path) -> None:
        try:
            signature = _file_signature(path)
        except OSError as error:
            self._keep_previous_keys((), path, error)
            return
        if signature == self._file_signature:
            return
        try:
            digests = _read_digests(path)
        except (OSError, ValueError) as error:
            self._keep_previous_keys(signature, path, error)
            return
        with self._lock:
            self._file_signature, self._digests = signature, digests
        logger.info("API keys: read %d from %s", len(digests), path)

    def _keep_previous_keys(self, signature: tuple[int, ...], path: Path, error: Exception) -> None:
        # Each request checks the file. Log the error only if the file has changed since the last
        # check: a log line for each request would fill the log.
        with self._lock:
            has_changed, self._file_signature = signature != self._file_signature, signature
        if has_changed:
            logger.error(
                "API keys: still using the previous keys, since %s cannot be used: %s",
                path,
                _reason(error),
            )


def _file_signature(path: Path) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read_digests(path: Path) -> tuple[bytes, ...]:
    lines = (line.strip() for line in path.read_text("utf-8").splitlines())
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ValueError("the file holds no key")
    return tuple(_digest(key) for key in keys)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "the file is not UTF-8 text"
    return getattr(error, "strerror", None) or str(error)
