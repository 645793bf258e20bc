"""A port that cannot be had is told before anything slow begins."""

import socket

import pytest

from server.ports import reserve
from tpuserve.errors import InvalidSetting, PortInUse


def test_port_in_use_is_named_with_its_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"^--port is {port}, and something else listens"):
            reserve("127.0.0.1", port, "--port")


def test_port_in_use_is_noticed_from_the_wildcard_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(PortInUse):
        reserve("0.0.0.0", other.getsockname()[1], "--port")


def test_address_of_another_machine_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="cannot listen on 192.0.2.1:0"):
        reserve("192.0.2.1", 0, "--port")


def test_name_that_no_machine_has_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"cannot listen on no\.such\.host\.invalid:0"):
        reserve("no.such.host.invalid", 0, "--port")
