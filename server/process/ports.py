"""Binding of TCP ports, and checks of UNIX sockets, before the slow part of start-up."""

import errno
import socket

from tpuserve.errors import InvalidSetting, PortInUse

# The hosts that mean all addresses: one dual-stack socket serves IPv4 and IPv6.
_ALL_ADDRESSES = ("0.0.0.0", "::")
_CONNECT_TIMEOUT_SECONDS = 1


def bind_port(host: str, port: int, flag: str) -> socket.socket:
    """Bind a TCP socket without listening: clients are refused until the server listens.

    Args:
      host: an IPv4 address, or an IPv6 address without brackets. 0.0.0.0 means every IPv4 address
        of this machine and, where the machine has IPv6, every IPv6 address, as in gRPC.
      port: the port number; 0 for any free port.
      flag: the flag that set the port, for error messages.

    Raises:
      PortInUse: another process listens on the port.
      InvalidSetting: this machine cannot listen on the address or the port.
    """
    try:
        return _bind_any_family(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise port_in_use_error(host, port, flag) from error
        raise InvalidSetting(
            f"cannot listen on {format_address(host, port)} ({flag}): {error.strerror or error}. "
            f"Give an address of this machine in --host and a port that you may use."
        ) from error


def check_unix_socket_is_free(path: str, flag: str) -> None:
    """Check that no process listens on a UNIX socket; gRPC would silently replace the socket.

    A socket file that a killed server has left behind raises no error.

    Args:
      path: the path of the UNIX socket.
      flag: the flag that set the path, for error messages.

    Raises:
      PortInUse: another process listens on the socket.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_TIMEOUT_SECONDS)
        try:
            probe.connect(path)
        except TimeoutError:
            # A process listens on the socket: the timeout means that its queue of connections is
            # full.
            pass
        except OSError:
            return
    raise PortInUse(
        f"{flag} is {path}, and another process listens on this socket. Stop that process, or give "
        f"another path."
    )


def format_address(host: str, port: int) -> str:
    """Format an address as "127.0.0.1:8500" or "[::1]:8500"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def port_in_use_error(host: str, port: int, flag: str) -> PortInUse:
    """Create the error for a port on which another process listens."""
    return PortInUse(
        f"{flag} is {port}, and another process listens on {format_address(host, port)}. Stop that "
        f"process, or give another port."
    )


def unix_socket_error(path: str, flag: str) -> InvalidSetting:
    """Create the error for a UNIX socket that cannot be created."""
    return InvalidSetting(
        f"cannot listen on unix:{path} ({flag}). Give a path of at most 107 bytes, in a directory "
        f"that exists and that you may write to."
    )


def _bind_any_family(host: str, port: int) -> socket.socket:
    if host in _ALL_ADDRESSES and socket.has_dualstack_ipv6():
        try:
            return _bind(socket.AF_INET6, "::", port)
        except OSError as error:
            # Fall back to IPv4: containers often have a kernel with IPv6 and no IPv6 address.
            if host == "::" or error.errno == errno.EADDRINUSE:
                raise
    return _bind(socket.AF_INET6 if ":" in host else socket.AF_INET, host, port)


def _bind(family: int, host: str, port: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        # Set SO_REUSEADDR, so that a restarted server can bind the port at once and need not wait
        # until the connections of the old process expire.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
