"""The door of the REST face: who may come in, and who answers."""

from starlette.types import ASGIApp, Receive, Scope, Send

from server.auth import ApiKeys
from server.limits import Limits
from server.metrics import Metrics
from server.rest import errors, paths
from server.rest.api import Api
from server.rest.options import Options
from server.rest.replies import TEXT, Reply, not_found, send_reply
from tpuserve.errors import Unauthenticated

HEALTH, READINESS = "/healthz", "/readyz"
_CORS = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (b"access-control-allow-headers", b"Content-Type"),
)


class Front:
    """The whole face, as one ASGI application."""

    def __init__(
        self,
        api: Api,
        docs: ASGIApp,
        docs_paths: tuple[str, ...],
        options: Options,
        *,
        metrics: Metrics | None = None,
        keys: ApiKeys | None = None,
        limits: Limits | None = None,
        monitoring_path: str | None = None,
    ) -> None:
        """Takes who answers what.

        Args:
          docs: answers for the paths that begin with one of `docs_paths`.
          metrics: told at `monitoring_path`, where both are given.
        """
        self._api = api
        self._docs = docs
        self._docs_paths = docs_paths
        self._metrics = metrics
        self._keys = keys
        self._limits = limits
        self._monitoring_path = monitoring_path if metrics is not None else None
        self._cors = _CORS if options.allow_origins else ()
        self._open_paths = {
            *((HEALTH, READINESS) if options.open_health else ()),
            *((monitoring_path,) if options.open_metrics else ()),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; anything but HTTP is not for us."""
        if scope["type"] != "http":
            return
        path = scope["raw_path"].decode("latin-1")
        if query := scope["query_string"]:
            path += "?" + query.decode("latin-1")
        if self._keys is not None and (refusal := self._refusal(path, scope)) is not None:
            reply = refusal
        elif paths.is_api(path):
            reply = await self._api.answer(path, scope, receive)
        elif path.startswith(self._docs_paths):
            await self._docs(scope, receive, send)
            return
        else:
            reply = self._answer(path, scope["method"])
        if self._cors:
            reply = Reply(
                reply.status, reply.body, reply.content_type, (*reply.headers, *self._cors)
            )
        await send_reply(send, reply)

    def close(self) -> None:
        """Lets go of what it holds; no request is answered from here on."""
        self._api.close()

    def _refusal(self, path: str, scope: Scope) -> Reply | None:
        assert self._keys is not None
        # A browser sends no key with what it asks before a page's request.
        if path in self._open_paths or (scope["method"] == "OPTIONS" and paths.is_api(path)):
            return None
        found = [value for name, value in scope["headers"] if name == b"authorization"]
        try:
            self._keys.check(found[0].decode("latin-1") if found else None)
        except Unauthenticated as error:
            return errors.reply_to(error)
        return None

    def _answer(self, path: str, method: str) -> Reply:
        if path == HEALTH:
            return Reply(200, b"ok\n", TEXT)
        if path == READINESS:
            is_ready = self._limits is None or self._limits.is_ready
            return Reply(200, b"ready\n", TEXT) if is_ready else Reply(503, b"not ready\n", TEXT)
        if self._monitoring_path and path.partition("?")[0] == self._monitoring_path:
            if path != self._monitoring_path:
                return errors.respond(400, f"Unexpected path: {path}")
            if method != "GET":
                return errors.respond(400, f"Malformed request: {method} {path}")
            assert self._metrics is not None
            return Reply(200, self._metrics.exposition(), TEXT)
        return not_found()
