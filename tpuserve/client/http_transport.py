"""Sends calls over HTTP with httpx."""

import ssl
from typing import Any

import httpx

from tpuserve.client.call import Call, Reply
from tpuserve.client.retries import Deadline
from tpuserve.client.transport import Connection, http_error
from tpuserve.errors import InvalidSetting, TpuserveError


class HttpTransport:
    """Sends calls from any thread."""

    def __init__(self, connection: Connection) -> None:
        """Create a transport that connects with its first call."""
        self._connection = connection
        self._client = httpx.Client(**_settings(connection))
        self._requests = _RequestFactory(connection)

    def send(self, call: Call, deadline: Deadline) -> Reply:
        """Send a call and return its reply.

        Raises:
          TpuserveError: the server has refused the call or does not answer.
        """
        try:
            response = self._client.send(self._requests.create(call, deadline))
        except httpx.HTTPError as error:
            raise _convert_error(self._connection, error, deadline) from error
        return _convert_response(response)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class AsyncHttpTransport:
    """Sends calls on an event loop."""

    def __init__(self, connection: Connection) -> None:
        """Create a transport that connects with its first call."""
        self._connection = connection
        self._client = httpx.AsyncClient(**_settings(connection))
        self._requests = _RequestFactory(connection)

    async def send(self, call: Call, deadline: Deadline) -> Reply:
        """Send a call and return its reply.

        Raises:
          TpuserveError: the server has refused the call or does not answer.
        """
        try:
            response = await self._client.send(self._requests.create(call, deadline))
        except httpx.HTTPError as error:
            raise _convert_error(self._connection, error, deadline) from error
        return _convert_response(response)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _settings(connection: Connection) -> dict[str, Any]:
    verify: ssl.SSLContext | bool = True
    if connection.ca_file is not None:
        connection.read_ca_file()
        try:
            verify = ssl.create_default_context(cafile=connection.ca_file)
        except ssl.SSLError as error:
            raise InvalidSetting(
                f"ca_file is {connection.ca_file!r}, which has no certificate ({error.reason}). "
                f"Give a PEM file with certificates."
            ) from error
    # Without TLS, leave the system's certificates out: reading them takes longer than the rest of
    # the creation of a client.
    elif not connection.address.is_secure:
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The number of connections follows the number of calls at the same time.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return {"verify": verify, "limits": limits}


class _RequestFactory:
    """Creates requests in less time than httpx's clients do, which parse the URL each time."""

    def __init__(self, connection: Connection) -> None:
        self._base = connection.address.base
        self._headers = {
            "accept": "*/*",
            "accept-encoding": "gzip, deflate",
            "user-agent": "tpuserve",
            **connection.authorization(),
        }
        self._urls: dict[str, httpx.URL] = {}

    def create(self, call: Call, deadline: Deadline) -> httpx.Request:
        """Create the request of a call, whose waits end at the deadline."""
        url = self._urls.get(call.path)
        if url is None:
            url = self._urls[call.path] = httpx.URL(self._base + call.path)
        remaining = deadline.remaining_s()
        return httpx.Request(
            "GET" if call.body is None else "POST",
            url,
            headers={**self._headers, **call.headers},
            content=call.body,
            extensions={"timeout": dict.fromkeys(("connect", "read", "write", "pool"), remaining)},
        )


def _convert_error(
    connection: Connection, error: httpx.HTTPError, deadline: Deadline
) -> TpuserveError:
    if isinstance(error, httpx.TimeoutException):
        return deadline.error()
    return connection.unreachable_error(error)


def _convert_response(response: httpx.Response) -> Reply:
    if response.is_success:
        return Reply(response.content, response.headers)
    raise http_error(response.status_code, response.headers, response.content)
