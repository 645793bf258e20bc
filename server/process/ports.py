"""Binds TCP ports early in the start of a server, and creates errors about addresses."""

import errno
import socket

from tpuserve.errors import Code, CodedError, InvalidSetting

ALL_ADDRESSES = ("0.0.0.0", "::")
"""The hosts that mean all addresses: one dual-stack socket serves IPv4 and IPv6."""


def bind_port(host: str, port: int, flag: str, *, is_shared: bool = False) -> socket.socket:
    """Bind a TCP socket to a port, without listening.

    No other process can then use the port. Connections of clients are refused until the server
    listens.

    Args:
      host: an IPv4 address, or an IPv6 address without brackets. As in gRPC, 0.0.0.0 means all IPv4
        addresses of this machine, and all IPv6 addresses if it has IPv6.
      port: the port number; 0 for any free port.
    """
    try:
        return _bind_any_family(host, port, is_shared)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise port_in_use_error(host, port, flag) from error
        raise InvalidSetting(
            f"cannot listen on {format_address(host, port)} ({flag}): {error.strerror or error}. "
            f"Give an address of this machine in --host and a port that you may use."
        ) from error


def share_port(bound: socket.socket) -> None:
    """Allow other processes of the same user to listen on the port of a socket too.

    The operating system then distributes new connections among all sockets that listen on the port.
    """
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def format_address(host: str, port: int) -> str:
    """Format an address as "127.0.0.1:8500" or "[::1]:8500"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def port_in_use_error(host: str, port: int, flag: str) -> CodedError:
    """Create the error for a port on which another process listens.

    Args:
      flag: the command-line flag that has set the port, such as "--port".
    """
    return CodedError(
        f"{flag} is {port}, and another process listens on {format_address(host, port)}. Stop that "
        f"process, or give another port.",
        Code.UNAVAILABLE,
    )


def unix_socket_error(path: str, flag: str) -> InvalidSetting:
    """Create the error for a UNIX socket that cannot be created."""
    return InvalidSetting(
        f"cannot listen on unix:{path} ({flag}). Give a path of at most 107 bytes, in a directory "
        f"that exists and that you may write to."
    )


def _bind_any_family(host: str, port: int, is_shared: bool) -> socket.socket:
    if host in ALL_ADDRESSES and socket.has_dualstack_ipv6():
        try:
            return _bind(socket.AF_INET6, "::", port, is_shared)
        except OSError as error:
            # If the socket for IPv6 cannot be bound, use IPv4: a container often has a kernel with
            # IPv6 but no IPv6 address.
            if host == "::" or error.errno == errno.EADDRINUSE:
                raise
    return _bind(socket.AF_INET6 if ":" in host else socket.AF_INET, host, port, is_shared)


def _bind(family: int, host: str, port: int, is_shared: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        # Set SO_REUSEADDR, so that a restarted server can bind the port while connections of the
        # old process are in the state TIME_WAIT.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            share_port(bound)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
