"""Answers the requests for the console, and for the JSON index at the root path."""

import json
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib import metadata, resources
from itertools import pairwise
from typing import Any, TypeAlias

from prometheus_client.core import Metric, Sample

from server.dataplane import DataPlane, ModelSpec
from server.frontends.rest import errors
from server.frontends.rest.console import forms
from server.frontends.rest.openapi import paths as openapi_paths
from server.frontends.rest.transport.responses import JSON, Headers, Response, get_header, not_found
from server.frontends.rest.transport.shared_builds import SharedBuilds
from server.metrics import Metrics
from server.metrics.collectors import exported_name
from server.metrics.metrics import IN_FLIGHT, QUEUE_SIZE, RESIDENT_BYTES
from server.metrics.own_collectors import (
    LATENCY_BOUNDS_US,
    REQUEST_COUNT,
    REQUEST_LATENCY,
)
from server.process import memory_limit
from server.servables.servable import State, VersionStatus
from tpuserve.errors import ModelNotFound, TpuserveError, Unavailable

INDEX = "/"
"""The page for browsers, and a JSON index for other clients."""
PREFIX = "/console/"
STATUS = "/console/status"
SIGNATURES = "/console/signatures"
STATIC = "/console/static/"
FILES = {
    "console.css": b"text/css",
    "console.js": b"text/javascript",
    "form.js": b"text/javascript",
    "picture.js": b"text/javascript",
    "rates.js": b"text/javascript",
    "render.js": b"text/javascript",
    "server.js": b"text/javascript",
    "tensors.js": b"text/javascript",
    "trial.js": b"text/javascript",
    "icon.svg": b"image/svg+xml",
}
"""The files below STATIC, with their media types."""
OPEN_PATHS = (INDEX, *(STATIC + name for name in FILES))
"""The paths that reveal nothing about the models. They need no API key."""


Json: TypeAlias = dict[str, Any]


class StatusReporter:
    """Describes the models and their load for the console's page.

    The counts are totals since the start of the server. The page computes rates from the
    differences between two reports.

    Args:
      metrics: The registry in which requests are counted. None for a server without metrics.
    """

    def __init__(self, dataplane: DataPlane, metrics: Metrics | None) -> None:
        self._dataplane = dataplane
        self._metrics = metrics
        self._memory_bytes = memory_limit.usable_memory_bytes()

    def build(self, unready_reason: str) -> Json:
        """Return the status of the server as JSON.

        If the models or the metrics are in other processes, the method blocks until these processes
        have sent their state.
        """
        samples = _Samples(() if self._metrics is None else self._metrics.collect())
        try:
            models = self._dataplane.list_models()
        except TpuserveError as error:
            # Report no models while the process that runs them is starting or has ended.
            models, unready_reason = {}, unready_reason or str(error)
        return {
            "time_ms": time.time_ns() // 1_000_000,
            "tpuserve_version": metadata.version("tpuserve"),
            "unready_reason": unready_reason,
            "resident_bytes": samples.total(RESIDENT_BYTES),
            "memory_bytes": self._memory_bytes,
            "requests_in_flight": samples.total(IN_FLIGHT),
            "latency_bounds_us": LATENCY_BOUNDS_US,
            "models": [
                {
                    "name": name,
                    "reason": "" if status.reason is None else str(status.reason),
                    "requests": samples.by_status(name),
                    "latency_counts": samples.latency_counts(name),
                    "queue_length": samples.total(QUEUE_SIZE, name),
                    "loaded_bytes": status.loaded_bytes,
                    "versions": [
                        self._describe_version(name, version) for version in status.versions
                    ],
                }
                for name, status in sorted(models.items())
            ],
            "errors": [
                {
                    "time_ms": error.time_ms,
                    "model": error.model,
                    "protocol": error.entrypoint,
                    "status": error.status,
                    "message": error.message,
                    "count": error.count,
                }
                for error in ([] if self._metrics is None else self._metrics.recent_errors())
            ],
        }

    def _describe_version(self, model: str, status: VersionStatus) -> Json:
        version: Json = {
            # Send the version number as text, because JavaScript rounds integers above 2**53.
            "version": str(status.version),
            "state": status.state.name,
            "reason": status.note if status.error is None else str(status.error),
            "is_failed": status.error is not None,
            "selection": status.selection,
        }
        if status.state is State.AVAILABLE:
            try:
                statistics = self._dataplane.statistics(ModelSpec(model, status.version))
            except (ModelNotFound, Unavailable):
                # The version was unloaded, or the process that runs it ended, after its status was
                # read. Return it without the counts of its requests.
                return version
            version["requests"] = statistics.inferences.num_successes
            version["rows"] = statistics.inferences.num_rows
            version["batching"] = statistics.batching
            unbatched = (statistics.batching or {}).get("unbatched_signatures", {})
            notes = (f"{name} is not batched: {reason}" for name, reason in unbatched.items())
            version["reason"] = ". ".join(filter(None, (status.note, *notes)))
        return version


class _Samples:
    """The values of the metrics, added up by model."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._by_name: dict[str, list[Sample]] = {}
        for metric in metrics:
            for sample in metric.samples:
                self._by_name.setdefault(sample.name, []).append(sample)

    def find(self, name: str, model: str | None = None) -> list[Sample]:
        samples = self._by_name.get(exported_name(name), [])
        return [sample for sample in samples if model in (None, sample.labels.get("model_name"))]

    def total(self, name: str, model: str | None = None) -> float:
        return sum(sample.value for sample in self.find(name, model))

    def by_status(self, model: str) -> dict[str, int]:
        """Return how many requests of a model ended with each canonical status."""
        samples = self.find(REQUEST_COUNT + "_total", model)
        return {sample.labels["status"]: int(sample.value) for sample in samples}

    def latency_counts(self, model: str) -> list[float]:
        """Return the number of a model's requests in each bucket of the latency histogram."""
        up_to: dict[float, float] = {}
        for sample in self.find(REQUEST_LATENCY + "_bucket", model):
            bound = float(sample.labels["le"])
            up_to[bound] = up_to.get(bound, 0) + sample.value
        counts = [up_to[bound] for bound in sorted(up_to)] or [0.0] * (len(LATENCY_BOUNDS_US) + 1)
        return [count - before for before, count in pairwise([0.0, *counts])]


_PAGE = "index.html"
_HTML = b"text/html; charset=utf-8"
# The headers of the page and its files. Their Content-Security-Policy allows the page to load only
# files of this server, and no inline script or style.
_HEADERS: Headers = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)
_NO_STORE: Headers = ((b"cache-control", b"no-store"),)


class ConsoleApp:
    """Serves the console: a web page for operators, its files, and the JSON that the page polls.

    Args:
      metrics: The registry in which requests are counted. None means that the page shows no
        counts.
    """

    def __init__(
        self,
        dataplane: DataPlane,
        metrics: Metrics | None,
        is_enabled: bool,
        monitoring_path: str | None = None,
    ) -> None:
        self.is_enabled = is_enabled
        self._dataplane = dataplane
        self._status = StatusReporter(dataplane, metrics)
        self._monitoring_path = monitoring_path
        self._builds: SharedBuilds[bytes] = SharedBuilds()

    def is_routed(self, path: str) -> bool:
        """Return whether the console answers a path, which may have a query string."""
        return path == INDEX or (self.is_enabled and path.startswith(PREFIX))

    async def answer(
        self, path: str, method: str, headers: Headers, unready_reason: Callable[[], str]
    ) -> Response:
        """Answer one request.

        Args:
          path: The path as sent, with the query string. `is_routed` must be true for it.
          unready_reason: Returns why the server is not ready; "" if it is ready.
        """
        if method not in ("GET", "HEAD"):
            return errors.error_response(400, f"Malformed request: {method} {path}")
        if path == INDEX:
            if self.is_enabled and _accepts_html(headers):
                return _file_response(_PAGE, _HTML)
            return Response(200, _encode(self._index()), JSON)
        if path == STATUS:
            build = partial(self._build_status, unready_reason)
            return Response(200, await self._builds.get(path, build), JSON, _NO_STORE)
        if path.startswith(SIGNATURES + "?"):
            try:
                spec = forms.parse_query(path.partition("?")[2])
                body = await self._builds.get(spec, partial(self._build_forms, spec))
            except Exception as error:
                return errors.response_to_error(error)
            return Response(200, body, JSON, _NO_STORE)
        name = path.removeprefix(STATIC)
        if name in FILES:
            return _file_response(name, FILES[name])
        return not_found()

    def _build_status(self, unready_reason: Callable[[], str]) -> bytes:
        return _encode(self._status.build(unready_reason()))

    def _build_forms(self, spec: ModelSpec) -> bytes:
        return _encode(forms.describe_version(self._dataplane, spec))

    def _index(self) -> dict[str, str]:
        links = {
            "models": "/v1/models",
            "open_inference": "/v2",
            "openapi": openapi_paths.DESCRIPTION,
            "docs": openapi_paths.PAGE,
            "health": "/healthz",
            "readiness": "/readyz",
        }
        if self._monitoring_path:
            links["metrics"] = self._monitoring_path
        return {"name": "tpuserve", "version": metadata.version("tpuserve"), **links}


def _accepts_html(headers: Headers) -> bool:
    accept = get_header(headers, b"accept")
    return accept is not None and b"text/html" in accept.lower()


def _file_response(name: str, content_type: bytes) -> Response:
    return Response(200, _read_file(name), content_type, _HEADERS)


@cache
def _read_file(name: str) -> bytes:
    return (resources.files(__package__) / "static" / name).read_bytes()


def _encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")
