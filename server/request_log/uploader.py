"""Uploads the complete files of request logs, in a thread of its own."""

import contextlib
import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from server.metrics import Metrics
from server.request_log.spool import Spool
from server.storage.upload import upload_file
from tpuserve.errors import TpuserveError

# The pause before the next try after a failure, in seconds: each failure doubles it.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0

logger = logging.getLogger(__name__)


@dataclass
class _Outage:
    """A period in which nothing can be uploaded to a destination."""

    pause_seconds: float
    retry_at: float


class Uploader:
    """Uploads files from a spool, oldest first, and deletes those that are uploaded.

    A destination that fails is tried again with growing pauses, and delays no other.
    """

    def __init__(self, spool: Spool, metrics: Metrics) -> None:
        self._spool = spool
        self._metrics = metrics
        self._waiting: list[Path] = []
        # The directories in the spool, one for each destination, whose uploads fail at present.
        self._outages: dict[Path, _Outage] = {}
        # Those whose last try at the end has failed.
        self._given_up: set[Path] = set()
        self._is_closing = False
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="request-log-upload", daemon=True)

    def start(self) -> None:
        """Start the thread, which first takes the files that an earlier server has left."""
        self._thread.start()

    def add(self, path: Path) -> None:
        """Upload a file of the spool as soon as possible."""
        with self._condition:
            self._waiting.append(path)
            self._condition.notify()

    def close(self, timeout_seconds: float | None) -> None:
        """Try once more to upload what waits, and end the thread.

        The files that cannot be uploaded in the time stay in the spool, for the next server.
        """
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        self._thread.join(timeout_seconds)
        with self._condition:
            count = len(self._waiting)
        if count:
            logger.warning(
                "request log: %d files are not uploaded. The next server with "
                "--request_log_spool_dir=%s uploads them.",
                count,
                self._spool.directory,
            )
        if not self._thread.is_alive():
            self._spool.close()

    def _run(self) -> None:
        # If the spool cannot be written, the thread that writes the records says so.
        with contextlib.suppress(OSError):
            self._spool.open()
            left = self._spool.take_left_files()
            if left:
                logger.info("request log: uploading %d files of an earlier server", len(left))
            with self._condition:
                self._waiting[:0] = left
        while (path := self._next()) is not None:
            self._upload(path)

    def _next(self) -> Path | None:
        """Wait for the next file to upload; return None at the end."""
        with self._condition:
            while True:
                now = time.monotonic()
                retry_at = None
                for path in self._waiting:
                    outage = self._outages.get(path.parent)
                    if self._is_closing:
                        if path.parent not in self._given_up:
                            return path
                    elif outage is None or outage.retry_at <= now:
                        return path
                    else:
                        retry_at = min(outage.retry_at, retry_at or outage.retry_at)
                if self._is_closing:
                    return None
                self._condition.wait(None if retry_at is None else retry_at - now)

    def _upload(self, path: Path) -> None:
        model, url = self._spool.destination(path)
        outage = self._outages.get(path.parent)
        try:
            # Somebody may have deleted the file, which must not hold up the next ones.
            if path.exists():
                upload_file(path, url)
        except TpuserveError as error:
            self._metrics.request_log_uploaded(model, error.code.name)
            if self._is_closing:
                self._given_up.add(path.parent)
            if outage is None:
                logger.error(
                    "request log of %s: %s Its files wait in %s.",
                    model,
                    error,
                    self._spool.directory,
                )
                pause_seconds = _FIRST_PAUSE_SECONDS
            else:
                pause_seconds = min(2 * outage.pause_seconds, _LONGEST_PAUSE_SECONDS)
            self._outages[path.parent] = _Outage(pause_seconds, time.monotonic() + pause_seconds)
            return
        self._metrics.request_log_uploaded(model, "OK")
        if outage is not None:
            del self._outages[path.parent]
            logger.info("request log of %s: its files are uploaded again", model)
        with self._condition:
            self._waiting.remove(path)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
