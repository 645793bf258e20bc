"""Requests of one client are counted together."""

import pytest

from server.admission.admission import network_of_host


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("/run/server.sock", "/run/server.sock"),
        ("", ""),
    ],
)
def test_network_is_the_address_or_the_ipv6_network(host: str, network: str) -> None:
    assert network_of_host(host) == network
