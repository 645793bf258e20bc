"""Parses the address of a client as grpcio gives it, such as "ipv4:127.0.0.1:4000"."""

from functools import lru_cache
from urllib.parse import unquote

from server.admission import peers


def split_peer(peer: str) -> tuple[str, int]:
    """Return the client's IP address and port.

    Args:
      peer: grpcio's text, such as "ipv4:127.0.0.1:4000" or "ipv6:%5B::1%5D:4000".

    Returns:
      The IP address and the port; the unchanged text and 0 for a client on a UNIX socket.
    """
    family, _, address = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return peer, 0
    # Remove "::ffff:", which a dual-stack socket puts before the addresses of IPv4 clients.
    host, _, port = unquote(address).rpartition(":")
    return host.strip("[]").removeprefix("::ffff:"), int(port)


@lru_cache(maxsize=4096)
def peer_name(peer: str) -> str:
    """Return the name under which the calls of a client are counted together.

    Args:
      peer: grpcio's text of the client's address.

    Returns:
      The IP address, or its IPv6 network; "" for a client on a UNIX socket, because the address of
      such a client does not tell it from others.
    """
    host, port = split_peer(peer)
    return peers.network_of_host(host) if port else ""
