"""What the REST face is told, out of the settings of a server."""

import os
from dataclasses import dataclass

from server.config.settings import Settings


@dataclass(frozen=True)
class RestConfig:
    """How requests over REST are taken and answered; the defaults are those of the flags.

    Attributes:
      max_request_bytes: of a body, as sent and inflated.
      timeout_ms: how long a model may take; None for as long as it takes.
      threads: that models run in.
      allow_origins: whether every reply says that pages from anywhere may read it.
      access_log: whether each request is logged.
      open_metrics, open_health: whether these want no API key.
      is_batched: whether requests may wait for others, which none may do in the event loop.
    """

    max_request_bytes: int = 256 << 20
    timeout_ms: int | None = 30_000
    threads: int = 4 * (os.cpu_count() or 1)
    allow_origins: bool = False
    access_log: bool = False
    open_metrics: bool = False
    open_health: bool = False
    is_batched: bool = False

    @classmethod
    def from_settings(cls, settings: Settings | None) -> "RestConfig":
        """The options that some settings say."""
        if settings is None:
            return cls()
        return cls(
            max_request_bytes=settings.max_request_bytes or cls.max_request_bytes,
            timeout_ms=settings.rest_api_timeout_in_ms or None,
            threads=settings.rest_api_num_threads or cls.threads,
            allow_origins=settings.rest_api_enable_cors_support,
            access_log=settings.access_log,
            open_metrics=settings.open_metrics,
            open_health=settings.open_health,
            is_batched=settings.enable_batching,
        )
