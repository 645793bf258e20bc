"""A measurement over HTTP survives a server that closes idle connections, or makes none."""

import asyncio
import socket

import pytest

from tpuserve.bench.http_sender import HttpSender
from tpuserve.client.address import parse_url
from tpuserve.client.call import Call
from tpuserve.client.transport import ConnectionSettings

_REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def test_a_connection_that_the_server_closed_while_idle_is_not_used_again() -> None:
    async def measure() -> list[str]:
        closed = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_REPLY)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            closed.set()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        connection = ConnectionSettings(parse_url(f"http://127.0.0.1:{port}"))
        sender = HttpSender(connection, [Call("/v1/models")], connections=1, timeout_s=60)
        results = []
        for _ in range(2):
            closed.clear()
            results.append(await sender.send(0))
            await closed.wait()
            # The client sees the end of the connection in a later turn of its loop.
            while any(connection.is_open for connection in sender._idle):
                await asyncio.sleep(0)
        await sender.close()
        server.close()
        return results

    assert asyncio.run(measure()) == ["", ""]


def test_a_connection_that_is_not_made_in_time_is_an_error() -> None:
    """The server never answers the first message of TLS."""

    async def send(port: int) -> str:
        connection = ConnectionSettings(parse_url(f"https://127.0.0.1:{port}"))
        sender = HttpSender(connection, [Call("/v1/models")], connections=1, timeout_s=0.05)
        error = await sender.send(0)
        await sender.close()
        return error

    with socket.create_server(("127.0.0.1", 0)) as server:
        error = asyncio.run(send(server.getsockname()[1]))
    assert "no connection within 0.05 s. Start it" in error


def test_a_client_that_is_cancelled_while_it_connects_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is made and the task is cancelled in the same turn of the event loop."""

    async def cancel() -> None:
        connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def connect() -> None:
            await connected

        connection = ConnectionSettings(parse_url("http://127.0.0.1:1"))
        sender = HttpSender(connection, [Call("/v1/models")], connections=1, timeout_s=60)
        monkeypatch.setattr(sender, "_connect", connect)
        task = asyncio.create_task(sender.send(0))
        await asyncio.sleep(0)
        connected.set_result(None)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
