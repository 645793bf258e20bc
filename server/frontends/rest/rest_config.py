"""Selects the settings of the REST frontend from all settings of a server."""

import os
from dataclasses import dataclass

from server.config.settings import Settings


@dataclass(frozen=True)
class RestConfig:
    """The settings of the REST frontend.

    The defaults are the same as for the command-line flags, except for `enable_console`, whose flag
    is on by default.

    Attributes:
      max_request_bytes: The largest size of a request body in bytes, both as received and after
        decompression.
      timeout_ms: The milliseconds that a request may take. None means no limit.
      threads: The largest number of threads that run models for small requests at the same time.
      allow_origins: Whether responses have CORS headers, so that browsers let pages of any origin
        read the responses.
      open_health: Whether clients without an API key can call the health and readiness checks.
      health_route: A further path of the readiness check, which a cloud service requires. Empty for
        none.
      may_be_empty: Whether the server is ready even if it has no model, because clients load the
        models.
      allowed_hosts: The names, in lower case, that the header Host may have; IP addresses and
        localhost are always allowed.
    """

    max_request_bytes: int = 256 << 20
    timeout_ms: int | None = 30_000
    threads: int = 4 * (os.cpu_count() or 1)
    allow_origins: bool = False
    access_log: bool = False
    open_metrics: bool = False
    open_health: bool = False
    enable_console: bool = False
    health_route: str = ""
    may_be_empty: bool = False
    allowed_hosts: frozenset[str] = frozenset()
    scheme: str = "http"

    @classmethod
    def from_settings(cls, settings: Settings | None) -> "RestConfig":
        """Return the settings of the REST frontend, taken from all settings of a server.

        If `settings` is None, the result has the defaults.
        """
        if settings is None:
            return cls()
        time_limits = (settings.rest_api_timeout_in_ms, settings.default_request_timeout_ms)
        return cls(
            max_request_bytes=settings.max_request_bytes or cls.max_request_bytes,
            timeout_ms=min(filter(None, time_limits), default=None),
            threads=settings.rest_api_num_threads or cls.threads,
            allow_origins=settings.rest_api_enable_cors_support,
            access_log=settings.access_log,
            open_metrics=settings.open_metrics,
            open_health=settings.open_health,
            enable_console=settings.enable_console,
            health_route=settings.health_route,
            may_be_empty=settings.sagemaker_multi_model,
            allowed_hosts=frozenset(settings.allowed_hosts.lower().replace(",", " ").split()),
            scheme="https" if settings.ssl_config_file else "http",
        )
