"""Ports, taken before anything slow begins."""

import errno
import socket

from tpuserve.errors import InvalidSetting, PortInUse

# All addresses of a machine, of whichever kind: one socket serves both.
_EVERYWHERE = ("0.0.0.0", "::")
_ANSWER_SECONDS = 1


def reserve(host: str, port: int, flag: str) -> socket.socket:
    """A socket bound to an address and not listening: clients are refused until it is.

    Args:
      host: of IPv4, or of IPv6 without brackets. 0.0.0.0 is every address of this machine, those
        of IPv6 too where it has it, as to gRPC.
      port: 0 for any that is free.
      flag: the flag that the port comes from, for error texts.

    Raises:
      PortInUse: something listens there already.
      InvalidSetting: this machine cannot listen on that address or port.
    """
    try:
        return _bound(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise in_use(host, port, flag) from error
        raise InvalidSetting(
            f"cannot listen on {joined(host, port)} ({flag}): {error.strerror or error}. Give an "
            f"address of this machine in --host and a port that you may use."
        ) from error


def check_socket(path: str, flag: str) -> None:
    """Sees that nobody listens at a UNIX socket: gRPC would take it from them, unnoticed.

    Args:
      path: where one may lie that a server has left which was killed; that is no hindrance.
      flag: the flag that the path comes from, for error texts.

    Raises:
      PortInUse: somebody listens.
    """
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(_ANSWER_SECONDS)
        try:
            made.connect(path)
        except TimeoutError:
            # As many wait for who listens as may.
            pass
        except OSError:
            return
    raise PortInUse(
        f"{flag} is {path}, and something else listens there. Stop it, or give another path."
    )


def joined(host: str, port: int) -> str:
    """An address as one text, "127.0.0.1:8500" or "[::1]:8500"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    if host in _EVERYWHERE and socket.has_dualstack_ipv6():
        try:
            return _bind(socket.AF_INET6, "::", port)
        except OSError as error:
            # Built for IPv6 and without an address of it, as containers often are.
            if host == "::" or error.errno == errno.EADDRINUSE:
                raise
    return _bind(socket.AF_INET6 if ":" in host else socket.AF_INET, host, port)


def _bind(family: int, host: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        # Without it a restarted server would wait for its predecessor's connections to expire.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made


def in_use(host: str, port: int, flag: str) -> PortInUse:
    """The error for a port that is taken."""
    return PortInUse(
        f"{flag} is {port}, and something else listens on {joined(host, port)}. Stop it, or give "
        f"another port."
    )


def no_socket(path: str, flag: str) -> InvalidSetting:
    """The error for a UNIX socket that cannot be made."""
    return InvalidSetting(
        f"cannot listen on unix:{path} ({flag}). Give a path of 107 bytes at most, in a directory "
        f"that is there and may be written to."
    )
