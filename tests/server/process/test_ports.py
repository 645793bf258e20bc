"""A port that cannot be bound is reported before the slow part of the start."""

import socket

import pytest

from server.process import ports
from server.process.ports import bind_port
from tpuserve.errors import Code, CodedError, InvalidSetting


def test_port_in_use_is_named_with_its_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            CodedError,
            match=rf"^--port is {port}, and another process listens",
            check=lambda error: error.code is Code.UNAVAILABLE,
        ):
            bind_port("127.0.0.1", port, "--port")


def test_port_in_use_is_noticed_from_the_wildcard_address() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(CodedError, check=lambda error: error.code is Code.UNAVAILABLE),
    ):
        bind_port("0.0.0.0", other.getsockname()[1], "--port")


def test_address_of_another_machine_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="cannot listen on 192.0.2.1:0"):
        bind_port("192.0.2.1", 0, "--port")


def test_name_that_no_machine_has_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"cannot listen on no\.such\.host\.invalid:0"):
        bind_port("no.such.host.invalid", 0, "--port")


def connect(family: int, host: str, port: int) -> None:
    with socket.socket(family) as client:
        client.settimeout(10)
        client.connect((host, port))


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_every_address_is_one_of_both_kinds(host: str) -> None:
    with bind_port(host, 0, "--port") as reserved:
        reserved.listen()
        port = reserved.getsockname()[1]
        connect(socket.AF_INET, "127.0.0.1", port)
        connect(socket.AF_INET6, "::1", port)
        with pytest.raises(CodedError, check=lambda error: error.code is Code.UNAVAILABLE):
            bind_port("0.0.0.0", port, "--port")


def test_machine_without_ipv6_listens_on_every_address_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with bind_port("0.0.0.0", 0, "--port") as reserved:
        assert reserved.family == socket.AF_INET
        reserved.listen()
        connect(socket.AF_INET, "127.0.0.1", reserved.getsockname()[1])


def test_addresses_are_shown_as_clients_write_them() -> None:
    assert ports.format_address("127.0.0.1", 8500) == "127.0.0.1:8500"
    assert ports.format_address("::1", 8500) == "[::1]:8500"
