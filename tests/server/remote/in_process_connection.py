"""Connects the frontend's and the engine's end of a connection within one process, for tests."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from server.dataplane import DataPlaneInterface
from server.remote.channel import ARENA_BYTES, Channel
from server.remote.channel_loop import ChannelLoop, ChannelReader, OnClosed, OnMessage
from server.remote.client import EngineClient
from server.remote.data_plane import RemoteDataPlane
from server.remote.endpoint import EngineEndpoint


def create_channels(arena_bytes: int = ARENA_BYTES) -> tuple[Channel, Channel]:
    """Return the two ends of a new connection."""
    one, other = socket.socketpair()
    channels: list[Channel] = []
    greeting = threading.Thread(target=lambda: channels.append(Channel(other, arena_bytes)))
    greeting.start()
    first = Channel(one, arena_bytes)
    greeting.join()
    return first, channels[0]


def start_reader(on_message: OnMessage, on_closed: OnClosed) -> ChannelReader:
    loop = ChannelLoop("engine-client", on_message, on_closed)
    loop.start()
    return loop


def greet(client: EngineClient) -> Channel:
    """Connect a client to a new channel, which no endpoint has yet; return the channel."""
    one, other = socket.socketpair()
    greeting = threading.Thread(target=client.connect, args=(one,))
    greeting.start()
    channel = Channel(other)
    greeting.join()
    return channel


def connect(client: EngineClient, endpoint: EngineEndpoint) -> Channel:
    """Connect a client and an endpoint; return the endpoint's channel."""
    channel = greet(client)
    endpoint.add(channel)
    return channel


@contextmanager
def remote(dataplane: DataPlaneInterface) -> Iterator[RemoteDataPlane]:
    """Yield a data plane that forwards requests to `dataplane` through a socket."""
    endpoint = EngineEndpoint(dataplane, 8)
    endpoint.start()
    client = EngineClient(start_reader)
    connect(client, endpoint)
    try:
        yield RemoteDataPlane(client)
    finally:
        client.close()
        endpoint.close()
