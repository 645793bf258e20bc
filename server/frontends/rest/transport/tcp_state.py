"""Finds out, without reading from a connection, whether its client has closed the connection."""

import socket
import sys
from enum import Enum
from typing import Any

# Numbers of TCP connection states in Linux. Source: include/net/tcp_states.h.
_CLOSE, _CLOSE_WAIT = 7, 8


class ClientState(Enum):
    """The state of the client of a TCP connection: whether it still sends and receives bytes."""

    CONNECTED = "may send and receive"
    SENDS_NO_MORE = "sends no more bytes, and may still receive"
    GONE = "neither sends nor receives"


def read_client_state(transport: Any) -> ClientState:
    """Return the state of the client of an asyncio transport; CONNECTED if the state is unknown.

    The state comes from the operating system, because asyncio does not notice a disconnect while
    reading is paused.
    """
    pseudo_socket = transport.get_extra_info("socket")
    if pseudo_socket is None or sys.platform != "linux":
        return ClientState.CONNECTED
    try:
        # Create a second socket object for the connection, because uvloop's object lacks
        # getsockopt.
        connection = socket.socket(fileno=pseudo_socket.fileno())
    except OSError:
        return ClientState.GONE
    try:
        # Read the state, which is the first byte of the struct tcp_info.
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return ClientState.CONNECTED
    finally:
        connection.detach()
    if state == _CLOSE_WAIT:
        return ClientState.SENDS_NO_MORE
    return ClientState.GONE if state == _CLOSE else ClientState.CONNECTED
