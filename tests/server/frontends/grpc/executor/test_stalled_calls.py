"""The number and the waiting time of calls whose message has not arrived are bounded."""

import errno
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from server.frontends.grpc import peers
from server.frontends.grpc.executor import stalled_calls
from server.frontends.grpc.executor.stalled_calls import (
    StalledCallLimits,
    StalledCallReaper,
    received_bytes_by_address,
)


class Call:
    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.is_cancelled = False

    def peer(self) -> str:
        return self._peer

    def cancel(self) -> None:
        self.is_cancelled = True


class Machine:
    """A clock, and the bytes that two connections have received."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.received_bytes = self.other_received_bytes = 0

    def reaper(self, **limits: Any) -> StalledCallReaper:
        def received_bytes() -> dict[tuple[str, int], int]:
            return {
                ("10.0.0.1", 7): self.received_bytes,
                ("10.0.0.2", 7): self.other_received_bytes,
            }

        return StalledCallReaper(
            StalledCallLimits(
                10, clock=lambda: self.seconds, received_bytes=received_bytes, **limits
            )
        )


def list_cancelled(calls: list[Call]) -> list[bool]:
    return [call.is_cancelled for call in calls]


@pytest.mark.parametrize(
    ("bytes_per_second", "is_cancelled"), [(0, True), (900, True), (2000, False)]
)
def test_call_is_cancelled_unless_its_connection_goes_on_receiving(
    bytes_per_second: int, is_cancelled: bool
) -> None:
    machine = Machine()
    reaper, call = machine.reaper(), Call("ipv4:10.0.0.1:7")
    reaper.track(call)
    for _ in range(100):
        machine.seconds += 1
        machine.received_bytes += bytes_per_second
        reaper.cancel_stalled()
    assert call.is_cancelled == is_cancelled


def test_call_that_begins_late_on_an_idle_connection_gets_its_whole_time() -> None:
    machine = Machine()
    reaper, old, new = machine.reaper(), Call("ipv4:10.0.0.1:7"), Call("ipv4:10.0.0.1:7")
    reaper.track(old)
    for second in range(1, 20):
        machine.seconds = second
        if second == 8:
            reaper.track(new)
        reaper.cancel_stalled()
        assert old.is_cancelled == (second > 10)
        assert new.is_cancelled == (second > 18)


def test_client_with_too_many_calls_loses_its_oldest() -> None:
    reaper = Machine().reaper(max_calls_per_peer=8)
    other = Call("ipv4:10.0.0.2:1")
    reaper.track(other)
    calls = [Call(f"ipv4:10.0.0.1:{port}") for port in range(1, 11)]
    for call in calls:
        reaper.track(call)
    assert list_cancelled(calls) == [True] * 2 + [False] * 8
    assert not other.is_cancelled
    for call in (*calls, other):
        reaper.untrack(call)
    assert not reaper.has_waiting_calls
    assert not reaper._num_waits


def test_too_many_calls_of_all_clients_end_the_oldest() -> None:
    reaper = Machine().reaper(max_calls=8)
    calls = [Call(f"ipv4:10.0.0.{host}:1") for host in range(1, 11)]
    for call in calls:
        reaper.track(call)
    assert list_cancelled(calls) == [True] * 2 + [False] * 8


def test_connection_with_the_largest_incomplete_messages_loses_its_calls() -> None:
    machine = Machine()
    reaper = machine.reaper(max_pending_bytes=1_000_000)
    large, small = Call("ipv4:10.0.0.1:7"), Call("ipv4:10.0.0.2:7")
    # Bytes that were received before the calls began do not count.
    machine.received_bytes = 10**9
    reaper.cancel_stalled()
    for call in (large, small):
        reaper.track(call)
    for _ in range(9):
        machine.seconds += 2
        reaper.cancel_stalled()
        assert not large.is_cancelled
        machine.received_bytes += 100_000
        machine.other_received_bytes += 20_000
    machine.received_bytes += 20_000
    machine.seconds += 2
    reaper.cancel_stalled()
    assert (large.is_cancelled, small.is_cancelled) == (True, False)


def test_bytes_count_from_the_begin_of_a_call_although_they_come_before_the_first_check() -> None:
    machine = Machine()
    reaper = machine.reaper(max_pending_bytes=1_000_000)
    machine.received_bytes = 10**9
    reaper.cancel_stalled()
    old, new = Call("ipv4:10.0.0.1:7"), Call("ipv4:10.0.0.2:7")
    for call, seconds in ((old, 0.5), (new, 3.5)):
        machine.seconds = seconds
        reaper.track(call)
        machine.received_bytes += 400_000
        machine.other_received_bytes += 400_000
        for second in range(3):
            machine.seconds = int(seconds) + 1 + second
            reaper.cancel_stalled()
    # Since their calls began, the first connection has received 800,000 bytes and the second
    # 400,000: more than the limit together, so the first loses its call.
    assert (old.is_cancelled, new.is_cancelled) == (True, False)


def test_the_watch_goes_on_after_a_check_that_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stalled_calls, "_CHECK_INTERVAL_SECONDS", 0.001)
    checks: list[int] = []
    reaper, has_gone_on = Machine().reaper(), threading.Event()

    def check() -> None:
        checks.append(1)
        if len(checks) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        has_gone_on.set()

    reaper.start(check)
    assert has_gone_on.wait(30)
    reaper.close()
    assert "Too many open files" in caplog.text


@pytest.mark.parametrize(
    ("peer", "address", "name"),
    [
        ("ipv4:127.0.0.1:4000", ("127.0.0.1", 4000), "127.0.0.1"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:7", ("10.0.0.1", 7), "10.0.0.1"),
        ("ipv6:%5B2001:db8::1%5D:7", ("2001:db8::1", 7), "2001:db8::/64"),
        ("unix:", ("unix:", 0), ""),
    ],
)
def test_peer_is_split_and_named(peer: str, address: tuple[str, int], name: str) -> None:
    assert peers.split_peer(peer) == address
    assert peers.peer_name(peer) == name


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_received_bytes_of_a_connection_are_counted(family: socket.AddressFamily) -> None:
    with socket.socket(family) as listener:
        # By default the server listens on an IPv6 socket, which IPv4 clients can use too.
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::" if family == socket.AF_INET6 else "127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1])) as client:
            served, _ = listener.accept()
            with served:
                receive_all(client.sendall, served, 12_345)
                assert received_bytes_by_address()[client.getsockname()] == 12_345
                # Counting has not closed the descriptors of the connections.
                receive_all(client.sendall, served, 1)


def receive_all(send: Callable[[bytes], None], receiver: socket.socket, count: int) -> None:
    send(b"x" * count)
    while count:
        count -= len(receiver.recv(count))
