"""HostGroup: the connected processes of a program that runs on several hosts.

Host 0 has a connection to every other host. When the hosts exchange values, host 0 collects them
and sends all of them back.
"""

import functools
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from tpuserve.errors import HostLost, HostsDiffer
from trainer.config.host_addresses import HostAddresses
from trainer.hosts.connection import Connection

BEAT_SECS = 5.0
"""The interval between two heartbeats of a process, in seconds."""
SILENCE_SECS = 40.0
"""The time, in seconds, after which a host counts as lost if no message has come from it."""
# The default time, in seconds, that a process continues after another host is lost. The time is
# enough to save a checkpoint.
_GRACE_SECS = 15.0
# The default time, in seconds, that host 0 waits for the other hosts to end after a host is lost.
_OTHERS_END_SECS = 2.0
# How long, in seconds, the main thread waits before it raises an error of the devices.
_ERROR_SECS = 5.0

_EXIT_FAILED = 1


class HostGroup:
    """The hosts that run a program together, with one process on each.

    The methods that exchange values are collective: all processes must call them in the same order.

    Attributes:
      hosts: the addresses of all hosts, and the index of this host; None for a program on one
        host.

    Args:
      connections: number of a host → the connection to it. Host 0 has a connection to every
        other host. Every other host has only a connection to host 0.
      end_process: called in a thread with a message when a host is lost. None to print the
        message and to end the process with exit code 1.
      beat_secs: the interval between two heartbeats, in seconds.
      silence_secs: the time, in seconds, without any message from a host, after which the host
        counts as lost.
      grace_secs: how long, in seconds, this process continues after another host is lost.
      others_end_secs: how long, in seconds, host 0 waits after a loss for the other hosts to
        end, before it ends itself.
    """

    def __init__(
        self,
        hosts: HostAddresses | None = None,
        connections: Mapping[int, Connection] | None = None,
        *,
        end_process: Callable[[str], None] | None = None,
        beat_secs: float = BEAT_SECS,
        silence_secs: float = SILENCE_SECS,
        grace_secs: float = _GRACE_SECS,
        others_end_secs: float = _OTHERS_END_SECS,
    ) -> None:
        self.hosts = hosts
        self.size = len(hosts.addresses) if hosts else 1
        self.index = hosts.index if hosts else 0
        self._connections = dict(connections or {})
        self._end_process = end_process or _end_process
        self._beat_secs, self._silence_secs, self._grace_secs = beat_secs, silence_secs, grace_secs
        self._others_end_secs = others_end_secs
        self._changed = threading.Condition()
        self._inbox: dict[int, deque[dict[str, Any]]] = {
            host: deque() for host in self._connections
        }
        # Number of a host that has ended → the time at which this was noticed, and the reason.
        self._gone: dict[int, tuple[float, str]] = {}
        self._said_bye: set[int] = set()
        self._disconnected: set[int] = set()
        self._needed_since: float | None = None
        self._waits_for: set[int] = set()
        self._loss = ""
        self._reported_loss: tuple[int, str] | None = None
        self._nesting = 0
        self._served: list[weakref.WeakMethod[Callable[[Any], None]]] = []
        self._is_closed = threading.Event()
        tasks: list[Callable[[], None]] = [
            functools.partial(self._receive, host) for host in self._connections
        ]
        if self._connections:
            tasks += [self._send_beats, self._watch]
        self._threads = [threading.Thread(target=task, daemon=True) for task in tasks]
        for thread in self._threads:
            thread.start()

    @property
    def is_first(self) -> bool:
        """Whether this is host 0, which writes checkpoints, summaries and exports."""
        return self.index == 0

    def gather(self, name: str, value: Any) -> list[Any]:
        """Exchange values among all hosts; return the values in the order of the hosts.

        Args:
          name: a description of the value. All hosts must pass the same description.

        Raises:
          HostsDiffer: another host has passed another `name`, so it runs another part of the
            program.
        """
        if self.size == 1 or self._nesting:
            return [value] * self.size
        if self.is_first:
            others = range(1, self.size)
            with self._changed:
                self._waits_for.update(others)
                self._changed.notify_all()
            messages = [{"name": name, "value": value}, *map(self._take, others)]
            error = self._difference([str(message["name"]) for message in messages])
            values = [message["value"] for message in messages]
            for connection in self._connections.values():
                _try_to_send(connection, kind="values", name=name, value=values, error=error)
        else:
            _try_to_send(self._connections[0], kind="value", name=name, value=value)
            answer = self._take(0)
            values, error = answer["value"], answer["error"]
        if error:
            raise HostsDiffer(error)
        return list(values)

    def broadcast(self, name: str, value: Any) -> Any:
        """Send host 0's value to all hosts, and return it; all hosts must call this method.

        Args:
          value: host 0's value, which JSON can represent; ignored on other hosts.
        """
        return self.gather(name, value if self.is_first else None)[0]

    def wait_for_all(self, name: str) -> None:
        """Wait until all hosts have called this method (a barrier).

        Args:
          name: a description of the barrier. All hosts must pass the same description.
        """
        self.gather(name, None)

    def run_on_first(self, name: str, function: Callable[[], Any]) -> Any:
        """Call a function on host 0 only; return its result on all hosts.

        The function may call collective methods of the group. Inside the function, they do not
        communicate, and each returns at once.

        Args:
          name: a description of what the function does. All hosts must pass the same description.

        Raises:
          HostLost: the function failed on host 0. Host 0 itself raises the function's own error.
        """
        if self.size == 1 or self._nesting:
            return function()
        result, error = None, None
        if self.is_first:
            self._nesting += 1
            try:
                result = function()
            except Exception as raised:
                error = raised
            finally:
                self._nesting -= 1
        text = f"{type(error).__name__}: {error}" if error is not None else ""
        result, text = self.broadcast(name, [result, text])
        if error is not None:
            raise error
        if text:
            raise HostLost(f"{name} failed on {self.describe(0)}: {text}. See the output there.")
        return result

    def serve_calls(self, method: Callable[[Any], None]) -> int:
        """Register a bound method that host 0 can call on this host with `call_others`.

        All hosts must register the same methods in the same order.
        """
        self._served.append(weakref.WeakMethod(method))
        return len(self._served) - 1

    def call_others(self, number: int, value: Any) -> None:
        """Let all other hosts call a method that they have registered with `serve_calls`.

        Only host 0 may use this function.
        """
        assert self.is_first
        for connection in self._connections.values():
            _try_to_send(connection, kind="call", number=number, value=value)

    def describe(self, host: int) -> str:
        """Return the number and the address of a host, for messages."""
        return self.hosts.describe(host) if self.hosts else f"host {host}"

    @contextmanager
    def needing_all(self) -> Iterator[None]:
        """Return a context in which a computation on the devices needs all hosts.

        If a host is lost in the context, the process ends at once with a clear message.
        """
        with self._changed:
            self._needed_since = time.monotonic()
            self._changed.notify_all()
        try:
            yield
        except Exception:
            # Wait before raising the error. If a lost host caused it, another thread, which runs
            # `_watch`, ends the process in this time.
            if self.size > 1:
                self._is_closed.wait(_ERROR_SECS)
            raise
        finally:
            with self._changed:
                self._needed_since = None

    def leave(self) -> None:
        """Tell the other hosts that the program of this host ends, so that they report no loss.

        Host 0 then waits until the processes of all other hosts have ended, because their jax
        clients need the coordination service that runs on host 0.
        """
        for connection in self._connections.values():
            _try_to_send(connection, kind="bye")
        if self.is_first:
            with self._changed:
                self._changed.wait_for(self._is_alone)

    def close(self) -> None:
        """End the threads and the connections.

        Call `leave` first; otherwise the other hosts report that this host is lost.
        """
        with self._changed:
            self._is_closed.set()
            self._changed.notify_all()
        for connection in self._connections.values():
            connection.shut_down()
        for thread in self._threads:
            thread.join()
        for connection in self._connections.values():
            connection.close()

    def _difference(self, names: list[str]) -> str:
        """Return an error message if the hosts are in different collective calls; "" otherwise."""
        differing = [host for host, name in enumerate(names) if name != names[0]]
        if not differing:
            return ""
        host = differing[0]
        return (
            f"the hosts do different things: {self.describe(0)} is at {names[0]!r}, and "
            f"{self.describe(host)} at {names[host]!r}. Every host must run the same program, with "
            f"the same calls of train, evaluate and export in the same order."
        )

    def _take(self, host: int) -> dict[str, Any]:
        while (message := self._wait_for_message(host))["kind"] == "call":
            method = self._served[message["number"]]()
            assert method is not None
            method(message["value"])
        return message

    def _wait_for_message(self, host: int) -> dict[str, Any]:
        with self._changed:
            self._waits_for.add(host)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._inbox[host] or self._loss)
            self._waits_for.discard(host)
            if not self._inbox[host]:
                raise HostLost(self._loss)
            return self._inbox[host].popleft()

    def _receive(self, host: int) -> None:
        """Receive the messages of a host until its connection ends; runs in a thread."""
        reason = "its process has ended"
        connection = self._connections[host]
        while True:
            try:
                message = connection.receive(self._silence_secs)
            except TimeoutError:
                reason = f"nothing has come from it for {self._silence_secs:g} s"
                break
            if message is None:
                break
            self._handle(host, message)
        with self._changed:
            self._disconnected.add(host)
            self._gone.setdefault(host, (time.monotonic(), reason))
            self._changed.notify_all()

    def _handle(self, host: int, message: dict[str, Any]) -> None:
        kind = message.get("kind")
        with self._changed:
            if kind in ("value", "values", "call"):
                self._inbox[host].append(message)
            elif kind == "bye":
                self._said_bye.add(host)
                self._gone[host] = (time.monotonic(), "its program has ended")
            elif kind == "lost":
                self._reported_loss = int(message["host"]), str(message["reason"])
            self._changed.notify_all()

    def _send_beats(self) -> None:
        while not self._is_closed.wait(self._beat_secs):
            for connection in self._connections.values():
                _try_to_send(connection, kind="beat")

    def _watch(self) -> None:
        """Wait until a host that this process needs is lost; then end the process."""
        with self._changed:
            while (loss := self._reported_loss or self._find_loss(time.monotonic())) is None:
                # If a host has ended, check every second whether its grace period is over: it then
                # counts as lost. If none has ended, sleep until another thread notifies a change.
                self._changed.wait(1.0 if self._gone else None)
                if self._is_closed.is_set():
                    return
        host, reason = loss
        for connection in self._connections.values():
            _try_to_send(connection, kind="lost", host=host, reason=reason)
        text = (
            f"{self.describe(host)} is lost: {reason}. This process, on host {self.index}, ends "
            f"too. See the output of host {host}, and then start the program on all hosts again: "
            f"it continues from the last checkpoint."
        )
        if self.is_first:
            # Let the other hosts end first. If host 0 ended first, they would report that host 0 is
            # lost, although host 0 ends only because of the loss of another host.
            with self._changed:
                self._changed.wait_for(self._is_alone, timeout=self._others_end_secs)
        self._end_process(text)
        with self._changed:
            self._loss = text
            self._changed.notify_all()

    def _is_alone(self) -> bool:
        return len(self._disconnected) == len(self._connections)

    def _find_loss(self, now: float) -> tuple[int, str] | None:
        """Find a lost host without which this process cannot continue."""
        for host, (since, reason) in self._gone.items():
            if host in self._waits_for and not self._inbox[host]:
                return host, reason
            is_needed = self._needed_since is not None
            waited = now - max(since, self._needed_since or since)
            # A host sends "bye" when its program ends. Wait for the grace period even during a
            # computation on all hosts: the host may have finished its share of the computation.
            if host not in self._said_bye and (is_needed or waited > self._grace_secs):
                return host, reason
            if is_needed and waited > self._grace_secs:
                return host, reason
        return None


def _try_to_send(connection: Connection, **message: Any) -> None:
    """Send a message; do nothing if the connection has ended, because `_receive` reports this."""
    try:
        connection.send(**message)
    except OSError:
        return


def _end_process(message: str) -> NoReturn:
    """Print a message and end the process at once, even if its main thread is blocked."""
    try:
        print(f"Error: {message}", file=sys.stderr, flush=True)
        sys.stdout.flush()
    finally:
        os._exit(_EXIT_FAILED)


_ONE_HOST = HostGroup()
_current = _ONE_HOST


def current_group() -> HostGroup:
    """Return the group of the hosts that run this program.

    It consists of this host alone, unless `join_hosts` has connected several hosts.
    """
    return _current


def set_current_group(group: HostGroup | None) -> None:
    """Set the group that `current_group` returns; None resets it to this host alone."""
    global _current
    _current = group or _ONE_HOST
