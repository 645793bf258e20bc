"""The door of the REST face: who may come in, and who answers."""

from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.dataplane import DataPlane
from server.frontends.rest import errors
from server.frontends.rest.openapi import app
from server.frontends.rest.rest_config import RestConfig
from server.frontends.rest.transport.fast_path_protocol import SyncHandler
from server.frontends.rest.transport.responses import (
    TEXT,
    Headers,
    Peer,
    Response,
    not_found,
    send_response,
)
from server.frontends.rest.v1 import paths
from server.frontends.rest.v1.router import Api
from server.metrics import Metrics
from tpuserve.errors import Unauthenticated

_READY = b"ready\n"
HEALTH, READINESS = "/healthz", "/readyz"
_CORS = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (b"access-control-allow-headers", b"Content-Type"),
)


class RootApp:
    """The whole face, as one ASGI application."""

    def __init__(
        self,
        api: Api,
        dataplane: DataPlane,
        described: ASGIApp,
        options: RestConfig,
        *,
        metrics: Metrics | None = None,
        keys: ApiKeys | None = None,
        admission: AdmissionController | None = None,
        monitoring_path: str | None = None,
    ) -> None:
        """Takes who answers what.

        Args:
          dataplane: tells whether there is a model to be ready with.
          described: answers for the paths that begin with one of `docs.PATHS`.
          metrics: told at `monitoring_path`, where both are given.
        """
        self._api = api
        self._dataplane = dataplane
        self._described = described
        self._metrics = metrics
        self._keys = keys
        self._admission = admission
        self._monitoring_path = monitoring_path if metrics is not None else None
        self._cors = _CORS if options.allow_origins else ()
        self._open_paths = {
            *((HEALTH, READINESS) if options.open_health else ()),
            *((monitoring_path,) if options.open_metrics else ()),
        }

    def find(self, url: bytes) -> SyncHandler | None:
        """What answers the requests that are posted to a URL, where that is quick."""
        answer = self._api.find(url)
        if answer is None or (self._keys is None and not self._cors):
            return answer
        return partial(self._answer_at_once, answer, url.decode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; anything but HTTP is not for us."""
        await self.answer(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Answers one request; how, where that is known here."""
        if scope["type"] != "http":
            return None
        path = scope["raw_path"].decode("latin-1")
        if query := scope["query_string"]:
            path += "?" + query.decode("latin-1")
        refusal = self._refusal(path, scope["method"], scope["headers"])
        if refusal is not None:
            reply = refusal
        elif paths.is_api(path):
            reply = await self._api.answer(path, scope, receive)
        elif path.startswith(app.PATHS):
            await self._described(scope, receive, send)
            return None
        else:
            reply = self._answer(path, scope["method"])
        reply = self._with_origins(reply)
        await send_response(send, reply)
        return reply

    def close(self) -> None:
        """Lets go of what it holds; no request is answered from here on."""
        self._api.close()

    def _answer_at_once(
        self, answer: SyncHandler, path: str, headers: Headers, body: bytes, peer: Peer
    ) -> Response | None:
        reply = self._refusal(path, "POST", headers) or answer(headers, body, peer)
        return None if reply is None else self._with_origins(reply)

    def _with_origins(self, reply: Response) -> Response:
        return reply._replace(headers=(*reply.headers, *self._cors)) if self._cors else reply

    def _refusal(self, path: str, method: str, headers: Headers) -> Response | None:
        if self._keys is None or path in self._open_paths:
            return None
        if method == "GET" and path in app.OPEN_PATHS:
            return None
        # A browser sends no key with what it asks before a page's request.
        if method == "OPTIONS" and paths.is_api(path):
            return None
        found = [value for name, value in headers if name == b"authorization"]
        try:
            self._keys.authenticate(found[0].decode("latin-1") if found else None)
        except Unauthenticated as error:
            if self._metrics is not None and paths.is_api(path):
                # By no model: who may not ask must not make up names for series either.
                self._metrics.request_done("", "", "REST", error.code.name, 0)
            return errors.response_to_error(error)
        return None

    def _answer(self, path: str, method: str) -> Response:
        if path == HEALTH:
            return Response(200, b"ok\n", TEXT)
        if path == READINESS:
            why = self._unreadiness()
            return (
                Response(503, b"not ready: %s\n" % why, TEXT)
                if why
                else Response(200, _READY, TEXT)
            )
        if self._monitoring_path and path.partition("?")[0] == self._monitoring_path:
            if path != self._monitoring_path:
                return errors.error_response(400, f"Unexpected path: {path}")
            if method != "GET":
                return errors.error_response(400, f"Malformed request: {method} {path}")
            assert self._metrics is not None
            return Response(200, self._metrics.exposition(), TEXT)
        return not_found()

    def _unreadiness(self) -> bytes:
        # Whether requests should be sent here, as Kubernetes asks it: while the first models are
        # loaded nobody listens yet; then one that can be used is enough, since those that cannot
        # must not keep the others from their requests.
        if self._admission is not None and self._admission.is_draining:
            return b"the server is shutting down"
        if self._admission is not None and not self._admission.is_ready:
            return b"the server is starting"
        return b"" if self._dataplane.is_available else b"no model is available"
