"""Defines the client for asyncio programs, which calls models on a server."""

from collections.abc import Mapping, Sequence
from typing import Any

from tpuserve.client import retries
from tpuserve.client.address import ApiName, create_api, parse_url
from tpuserve.client.arrays import Array
from tpuserve.client.call import Call, ModelReference, Reply, Result, Steps, VersionStatus
from tpuserve.client.client import DEFAULT_ATTEMPTS, DEFAULT_TIMEOUT_SECONDS, check_settings
from tpuserve.client.retries import Deadline
from tpuserve.client.transport import DEFAULT_MAX_REPLY_BYTES, ConnectionSettings
from tpuserve.errors import TpuserveError
from tpuserve.saved_model.signature import Signature


class AsyncClient:
    """A client for asyncio, whose methods are coroutines and correspond to those of `Client`.

    Use an instance on one event loop only.
    """

    def __init__(
        self,
        url: str,
        *,
        api: ApiName = "v1",
        timeout_s: float = DEFAULT_TIMEOUT_SECONDS,
        attempts: int = DEFAULT_ATTEMPTS,
        api_key: str = "",
        ca_file: str | None = None,
        max_reply_bytes: int = DEFAULT_MAX_REPLY_BYTES,
    ) -> None:
        check_settings(timeout_s, attempts)
        address = parse_url(url)
        connection = ConnectionSettings(address, api_key, ca_file, max_reply_bytes)
        self._api = create_api(address, api)
        self._timeout_s = timeout_s
        self._attempts = attempts
        if address.is_http:
            from tpuserve.client.http_transport import AsyncHttpTransport

            self._transport: Any = AsyncHttpTransport(connection)
        else:
            from tpuserve.client.grpc_transport import AsyncGrpcTransport

            self._transport = AsyncGrpcTransport(connection)

    async def predict(
        self,
        model: str,
        inputs: Mapping[str, Any],
        *,
        signature: str = "",
        version: int | None = None,
        label: str = "",
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> dict[str, Array]:
        """Run a signature of a model, as `tpuserve.client.Client.predict` does."""
        reference = ModelReference(model, version, label)
        return await self.run(self._api.predict(reference, inputs, signature, outputs), timeout_s)

    async def signatures(
        self,
        model: str,
        *,
        version: int | None = None,
        label: str = "",
        timeout_s: float | None = None,
    ) -> Mapping[str, Signature]:
        """Return the signatures of a model, as `tpuserve.client.Client.signatures` does."""
        reference = ModelReference(model, version, label)
        return await self.run(self._api.signatures(reference), timeout_s)

    async def signature(
        self,
        model: str,
        name: str = "",
        *,
        version: int | None = None,
        label: str = "",
        timeout_s: float | None = None,
    ) -> Signature:
        """Return a signature of a model; see `Client.signature`."""
        reference = ModelReference(model, version, label)
        return await self.run(self._api.signature(reference, name), timeout_s)

    async def versions(self, model: str, *, timeout_s: float | None = None) -> list[VersionStatus]:
        """Return the state of each version of a model, as `Client.versions` does."""
        return await self.run(self._api.versions(model), timeout_s)

    async def is_ready(
        self,
        model: str,
        *,
        version: int | None = None,
        label: str = "",
        timeout_s: float | None = None,
    ) -> bool:
        """Return whether a model answers requests, as `tpuserve.client.Client.is_ready` does."""
        reference = ModelReference(model, version, label)
        return await self.run(self._api.is_ready(reference), timeout_s)

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._transport.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, steps: Steps[Result], timeout_s: float | None = None) -> Result:
        """Send the calls of an operation of the server's API, and return its result."""
        deadline = Deadline(self._timeout_s if timeout_s is None else timeout_s)
        try:
            call = next(steps)
            while True:
                try:
                    reply = await self._send(call, deadline)
                except TpuserveError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(reply)
        except StopIteration as stop:
            result: Result = stop.value
            return result

    async def _send(self, call: Call, deadline: Deadline) -> Reply:
        reply: Reply
        try:
            reply = await self._transport.send(call, deadline)
        except TpuserveError as error:
            if not (call.is_retried and self._attempts > 1 and retries.is_temporary(error)):
                raise
            reply = await retries.repeat_async(
                self._transport.send, call, deadline, self._attempts, error
            )
        return reply
