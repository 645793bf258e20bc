"""Parses the address of a client as grpcio gives it, such as "ipv4:127.0.0.1:4000"."""

from functools import lru_cache
from urllib.parse import unquote

from server.admission import admission


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
    """Return the name of a client, by which its calls are counted for the limits per client.

    All calls of a client, over any number of connections, have the same name.

    Returns:
      The IPv4 address, or the /64 network of an IPv6 address; "" for a client on a UNIX socket,
      because all such clients have the same address.
    """
    host, port = split_peer(peer)
    return admission.network_of_host(host) if port else ""
