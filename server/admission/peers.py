"""Tells which requests come from the same client, for limits per client."""

import ipaddress
from functools import lru_cache

# The part of an IPv6 address that names a network, in bits. One client usually has all addresses of
# such a network.
_IPV6_NETWORK_BITS = 64


@lru_cache(maxsize=4096)
def network_of_host(host: str) -> str:
    """Return the name under which the requests of a host are counted together.

    Args:
      host: The address of the host that has opened the connection, as text.

    Returns:
      An IPv4 address, also for its IPv6 form ::ffff:1.2.3.4; the /64 network of another IPv6
      address; and other texts, such as the path of a UNIX socket, unchanged.
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
