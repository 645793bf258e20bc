"""Reads how many bytes the TCP connections of this process have received and sent."""

import os
import socket
import struct

# The format of the fields `tcpi_bytes_acked` and `tcpi_bytes_received` in the struct tcp_info of
# Linux, and their offsets. Source: include/uapi/linux/tcp.h.
_FORMAT, _ACKED_OFFSET, _RECEIVED_OFFSET = "=Q", 120, 128
_SIZE = _RECEIVED_OFFSET + struct.calcsize(_FORMAT)
_DESCRIPTORS = "/proc/self/fd"


def received_bytes_by_address() -> dict[tuple[str, int], int]:
    """Return how many bytes each TCP connection of this process has received.

    The counts show how much of an incomplete gRPC message has arrived, which gRPC does not report.

    Returns:
      IP address and port of the client → number of bytes received since the connection was opened.
      Empty on a system other than Linux, where /proc and TCP_INFO do not exist.
    """
    return _counts_by_address(_RECEIVED_OFFSET)


def read_bytes_by_address() -> dict[tuple[str, int], int]:
    """Return how many bytes the client of each TCP connection of this process has acknowledged.

    The counts show whether a client reads its responses. Result as `received_bytes_by_address`.
    """
    return _counts_by_address(_ACKED_OFFSET)


def _counts_by_address(offset: int) -> dict[tuple[str, int], int]:
    counts: dict[tuple[str, int], int] = {}
    try:
        descriptors = os.listdir(_DESCRIPTORS)
    except OSError:
        return counts
    for descriptor in descriptors:
        try:
            connection = socket.socket(fileno=int(descriptor))
        except OSError:
            continue  # Skip a descriptor that is no socket, or was closed after `listdir`.
        try:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                host, port = connection.getpeername()[:2]
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
                (count,) = struct.unpack_from(_FORMAT, info, offset)
                counts[host.removeprefix("::ffff:"), port] = count
        except (OSError, struct.error):
            # Skip a UDP or listening socket. On a Linux whose tcp_info lacks the number of received
            # bytes, all sockets are skipped.
            continue
        finally:
            # Keep the socket object from closing the descriptor, which belongs to gRPC.
            connection.detach()
    return counts
