"""Ports, taken before anything slow begins."""

import errno
import socket

from tpuserve.errors import InvalidSetting, PortInUse


def reserve(host: str, port: int, flag: str) -> socket.socket:
    """A socket bound to an address and not listening: clients are refused until it is.

    Args:
      port: 0 for any that is free.
      flag: the flag that the port comes from, for error texts.

    Raises:
      PortInUse: something listens there already.
      InvalidSetting: this machine cannot listen on that address or port.
    """
    reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Without it a restarted server would wait for its predecessor's connections to expire.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, port))
    except OSError as error:
        reserved.close()
        if error.errno == errno.EADDRINUSE:
            raise in_use(host, port, flag) from error
        raise InvalidSetting(
            f"cannot listen on {host}:{port} ({flag}): {error.strerror or error}. Give an address "
            f"of this machine in --host and a port that you may use."
        ) from error
    return reserved


def in_use(host: str, port: int, flag: str) -> PortInUse:
    """The error for a port that is taken."""
    return PortInUse(
        f"{flag} is {port}, and something else listens on {host}:{port}. Stop it, or give another "
        f"port."
    )


def no_socket(path: str, flag: str) -> InvalidSetting:
    """The error for a UNIX socket that cannot be made."""
    return InvalidSetting(
        f"cannot listen on unix:{path} ({flag}). Give a path of 107 bytes at most, in a directory "
        f"that is there and may be written to."
    )
