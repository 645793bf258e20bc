"""Gives the requests of one client a common name, for limits per client."""

import ipaddress
from functools import lru_cache

# The number of leading bits of an IPv6 address that identify a client, in the limits per client.
# One client usually owns all addresses with the same leading bits.
_IPV6_NETWORK_BITS = 64


@lru_cache(maxsize=4096)
def network_of_host(host: str) -> str:
    """Return the name under which the requests of a host are counted, for limits per client.

    Args:
      host: The IP address of the host that has opened the connection, or another text, such as the
        path of a UNIX socket.

    Returns:
      For an IPv4 address, also in its IPv6 form ::ffff:1.2.3.4: the IPv4 address. For any other
      IPv6 address: its /64 network. For any other text: the text itself.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        network = ipaddress.IPv6Network((address, _IPV6_NETWORK_BITS), strict=False)
        return str(network)
    return str(address)
