"""Who may ask: API keys, sent as bearer tokens."""

import hashlib
import hmac
import logging
import os
import threading
from pathlib import Path

from tpuserve.errors import InvalidSetting, Unauthenticated

_SCHEME = "bearer"
_REFUSAL = "this server wants a valid API key. Send the header 'Authorization: Bearer KEY'."

logger = logging.getLogger(__name__)


class ApiKeys:
    """The keys of a file: one a line; empty lines and lines that begin with # do not count.

    The file is read again when it has changed. If that fails, the keys read last stay: a file
    that is being replaced must lock nobody out, and a lost one must let nobody in.
    """

    def __init__(self, path: Path | None) -> None:
        """Takes the file; None lets everybody in.

        Raises:
          InvalidSetting: the file cannot be read or has no key in it.
        """
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] = ()
        self._digests: tuple[bytes, ...] = ()
        if path is not None:
            try:
                self._stamp = _stamp(path)
                self._digests = _read(path)
            except (OSError, ValueError) as error:
                raise InvalidSetting(
                    f"--api_keys_file: {path} cannot be used: {_why(error)}. Give a text file "
                    f"with one key a line."
                ) from error

    def check(self, authorization: str | None) -> None:
        """Lets a request pass whose `Authorization` header carries one of the keys.

        Raises:
          Unauthenticated: no header, another scheme than Bearer, or none of the keys.
        """
        if self._path is None:
            return
        self._reload(self._path)
        scheme, _, key = (authorization or "").strip().partition(" ")
        # Digests have one length, so that the time of a comparison tells nothing of a key's.
        sent = _digest(key.strip())
        # All are compared, so that the time does not tell which one it is like either.
        matches = [hmac.compare_digest(sent, each) for each in self._digests]
        if scheme.lower() != _SCHEME or not any(matches):
            raise Unauthenticated(_REFUSAL)

    def _reload(self, path: Path) -> None:
        try:
            stamp = _stamp(path)
        except OSError as error:
            self._keep((), path, error)
            return
        if stamp == self._stamp:
            return
        try:
            digests = _read(path)
        except (OSError, ValueError) as error:
            self._keep(stamp, path, error)
            return
        with self._lock:
            self._stamp, self._digests = stamp, digests
        logger.info("API keys: read %d from %s", len(digests), path)

    def _keep(self, stamp: tuple[int, ...], path: Path, error: Exception) -> None:
        # Once per state of the file: a line per request would fill the log.
        with self._lock:
            is_news, self._stamp = stamp != self._stamp, stamp
        if is_news:
            logger.error("API keys: the old ones stay, as %s is unusable: %s", path, _why(error))


def _stamp(path: Path) -> tuple[int, ...]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> tuple[bytes, ...]:
    lines = (line.strip() for line in path.read_text("utf-8").splitlines())
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ValueError("no key in it")
    return tuple(_digest(key) for key in keys)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is no text in UTF-8"
    return getattr(error, "strerror", None) or str(error)
