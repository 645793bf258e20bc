import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests import processes
from tpuserve import __version__
from tpuserve.errors import (
    Code,
    CodedError,
    HostLost,
    HostMissing,
    HostsDiffer,
    InvalidSetting,
)
from trainer.config.host_addresses import HostAddresses
from trainer.hosts import program
from trainer.hosts.connection import Connection
from trainer.hosts.group import HostGroup

# A time limit in seconds, which only catches tests that hang.
LIMIT = 30


def addresses(index: int, count: int, port: int) -> HostAddresses:
    others = (f"host-{number}" for number in range(1, count))
    return HostAddresses(index, (f"{processes.LOOPBACK}:{port}", *others))


class Member:
    """A host of a group, all of whose hosts run in this process.

    Attributes:
      lost_message: the message with which the group would have ended the host's process; "" if
        none.
      has_ended: event that is set when the group would have ended the process.
      group: the HostGroup of the host.
    """

    def __init__(self, index: int, count: int, port: int, **options: Any) -> None:
        self.lost_message = ""
        self.has_ended = threading.Event()
        hosts = addresses(index, count, port)
        options = {"end_process": self._end, "others_end_secs": 0.1, **options}
        self.group = program.connect_hosts(hosts, LIMIT, **options)

    def _end(self, message: str) -> None:
        self.lost_message = message
        self.has_ended.set()

    def wait_for_end(self) -> str:
        assert self.has_ended.wait(LIMIT)
        return self.lost_message

    def drop(self) -> None:
        """Shut the connections down, as the operating system does when a process ends."""
        for connection in self.group._connections.values():
            connection.shut_down()


@contextmanager
def members(count: int, **options: Any) -> Iterator[tuple[list[Member], ThreadPoolExecutor]]:
    (port,) = processes.free_ports(1)
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(Member, index, count, port, **options) for index in range(count)]
        hosts = [future.result(LIMIT) for future in futures]
        yield hosts, pool
        for member in hosts:
            member.group.close()


def on_all(
    hosts: list[Member], pool: ThreadPoolExecutor, call: Callable[[HostGroup], Any]
) -> list[Any]:
    """Make a call on all hosts at the same time; return the result or exception of each."""

    def attempt(member: Member) -> Any:
        try:
            return call(member.group)
        except Exception as error:
            return error

    return [future.result(LIMIT) for future in [pool.submit(attempt, member) for member in hosts]]


def test_host_0_calls_a_method_of_the_others_while_they_wait_for_an_exchange() -> None:
    called: list[tuple[int, int]] = []

    class CallRecorder:
        def __init__(self, group: HostGroup) -> None:
            self.index, self.number = group.index, group.serve_calls(self.note)

        def note(self, value: int) -> None:
            called.append((self.index, value))

    def meet(group: HostGroup) -> Any:
        recorder = CallRecorder(group)
        if group.is_first:
            group.call_others(recorder.number, 7)
        group.wait_for_all("the end")
        return recorder.number

    with members(3) as (hosts, pool):
        assert on_all(hosts, pool, meet) == [0, 0, 0]
        assert sorted(called) == [(1, 7), (2, 7)]


def test_every_host_gets_the_values_of_all_in_order() -> None:
    with members(3) as (hosts, pool):
        gathered = on_all(hosts, pool, lambda group: group.gather("squares", group.index**2))
        assert gathered == [[0, 1, 4]] * 3
        assert on_all(hosts, pool, lambda group: group.broadcast("index", group.index)) == [0] * 3


def test_only_the_first_host_runs_what_writes_and_all_get_its_result() -> None:
    called = []

    def write(group: HostGroup) -> Any:
        called.append(group.index)
        # A nested call does not wait for hosts that do not make it.
        return group.broadcast("nested", f"written by {group.index}")

    with members(3) as (hosts, pool):
        results = on_all(
            hosts, pool, lambda group: group.run_on_first("writing", lambda: write(group))
        )
    assert results == ["written by 0"] * 3
    assert called == [0]


def test_all_hosts_learn_that_the_first_one_failed() -> None:
    def fail(group: HostGroup) -> Any:
        return group.run_on_first("the export", lambda: 1 // 0)

    with members(2) as (hosts, pool):
        first, second = on_all(hosts, pool, fail)
    assert isinstance(first, ZeroDivisionError)
    assert isinstance(second, HostLost)
    assert "the export failed on host 0 (127.0.0.1:" in str(second)


def test_hosts_that_do_different_things_are_named() -> None:
    def call(group: HostGroup) -> Any:
        return group.wait_for_all("evaluation" if group.index == 2 else "training")

    with members(3) as (hosts, pool):
        errors = on_all(hosts, pool, call)
    assert all(isinstance(error, HostsDiffer) for error in errors)
    assert "is at 'training', and host 2 (host-2) at 'evaluation'" in str(errors[1])


def test_a_lost_host_ends_those_that_wait_for_it_with_a_line_that_names_it() -> None:
    with members(3) as (hosts, pool):
        waiting = [pool.submit(hosts[index].group.gather, "step", 0) for index in (0, 2)]
        hosts[1].drop()
        for index, wait in zip((0, 2), waiting, strict=True):
            assert (
                hosts[index]
                .wait_for_end()
                .startswith(
                    "host 1 (host-1) is lost: its process has ended. "
                    f"This process, on host {index}, ends too."
                )
            )
            with pytest.raises(HostLost, match="host 1"):
                wait.result(LIMIT)


def test_the_loss_of_the_first_host_ends_the_others() -> None:
    with members(3) as (hosts, _), hosts[1].group.needing_all(), hosts[2].group.needing_all():
        hosts[0].drop()
        assert "host 0 (127.0.0.1:" in hosts[1].wait_for_end()
        assert "host 0 (127.0.0.1:" in hosts[2].wait_for_end()


def test_a_host_that_falls_silent_is_lost() -> None:
    with (
        members(2, beat_secs=3600, silence_secs=0.2) as (hosts, _),
        hosts[0].group.needing_all(),
    ):
        assert "nothing has come from it for 0.2 s" in hosts[0].wait_for_end()


def test_a_process_may_finish_what_needs_no_other_host_but_not_for_ever() -> None:
    with members(2, grace_secs=0.5) as (hosts, _):
        hosts[1].drop()
        assert "host 1 (host-1) is lost" in hosts[0].wait_for_end()


def test_the_first_host_leaves_last_and_an_orderly_end_is_no_loss() -> None:
    with members(2, grace_secs=0) as (hosts, pool):
        leaving = pool.submit(hosts[0].group.leave)
        hosts[1].group.leave()
        assert not leaving.done()
        hosts[1].drop()
        leaving.result(LIMIT)
        assert not hosts[0].lost_message


def test_a_single_host_has_no_one_to_wait_for() -> None:
    group = HostGroup()
    assert (group.size, group.is_first) == (1, True)
    assert group.gather("x", 7) == [7]
    assert group.run_on_first("y", lambda: 8) == 8


def test_a_host_that_does_not_come_is_named() -> None:
    (port,) = processes.free_ports(1)
    with ThreadPoolExecutor(2) as pool:
        waiting = [
            pool.submit(program.connect_hosts, addresses(index, 4, port), 1.0) for index in (0, 2)
        ]
        for wait in waiting:
            with pytest.raises(
                HostMissing, match=r"host 1 \(host-1\) and host 3 \(host-3\) did not join host 0"
            ):
                wait.result(LIMIT)


def test_a_first_host_that_does_not_answer_is_named() -> None:
    (port,) = processes.free_ports(1)
    with pytest.raises(HostMissing, match=rf"host 0 \(127.0.0.1:{port}\) does not answer"):
        program.connect_hosts(addresses(1, 2, port), 0.5)


@pytest.mark.parametrize(
    ("index", "count", "text"),
    [(1, 3, "host 1 was started with 3 hosts, and host 0 with 2"), (0, 2, "as host 0")],
)
def test_hosts_with_other_settings_are_refused(index: int, count: int, text: str) -> None:
    (port,) = processes.free_ports(1)
    hello = {"kind": "hello", "index": index, "count": count, "version": __version__}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(program.connect_hosts, addresses(0, 2, port), LIMIT)
        with contextlib.closing(connect(port)) as other:
            other.send(**hello)
            with pytest.raises(HostsDiffer, match=text):
                first.result(LIMIT)
            answer = other.receive(LIMIT)
    assert answer is not None
    assert text in answer["error"]


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1\r\n", b'{"kind": "hello", "index": "one"}\n'])
def test_a_stranger_on_the_port_is_ignored(line: bytes) -> None:
    (port,) = processes.free_ports(1)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(Member, 0, 2, port)
        with contextlib.closing(connect(port)) as stranger:
            stranger._socket.sendall(line)
            assert stranger.receive(LIMIT) is None
        for member in (pool.submit(Member, 1, 2, port), first):
            with contextlib.closing(member.result(LIMIT).group) as group:
                assert group.size == 2


def connect(port: int) -> Connection:
    while True:
        try:
            return Connection(socket.create_connection((processes.LOOPBACK, port), LIMIT))
        except ConnectionRefusedError:
            continue


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            CodedError,
            match=f"host 0 cannot listen on port {port}",
            check=lambda error: error.code is Code.UNAVAILABLE,
        ):
            program.connect_hosts(addresses(0, 2, port), 1.0)


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan"])
def test_the_time_limit_is_a_number(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(program.TIMEOUT_VARIABLE, text)
    with pytest.raises(InvalidSetting, match="TPUSERVE_HOSTS_TIMEOUT"):
        program.find_timeout_secs()
