"""The polling pool answers quick calls in the thread that polls, and others in workers."""

import gc
import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from server.admission import latency_tracker
from server.frontends.grpc.executor import grpcio_compat
from server.frontends.grpc.executor.cq_thread_pool import CompletionQueueThreadPool
from server.frontends.grpc.executor.stalled_calls import StalledCallLimits
from server.process.thread_pool import ThreadPool
from server.scheduling.request_queues import RequestQueues
from server.scheduling.run_limits import RunLimits
from tests.processes import LOOPBACK
from tests.server.frontends.grpc import clients

METHOD = "/s/m"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Echo:
    """A method whose calls wait until a gate is open; `begun_calls` counts the begun calls."""

    def __init__(self) -> None:
        self.begun_calls = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.messages: list[bytes | None] = []
        self.threads: list[str] = []

    def answer(self, message: bytes | None) -> bytes:
        self.messages.append(message)
        self.threads.append(threading.current_thread().name.partition("_")[0])
        self.begun_calls.release()
        assert self.gate.wait(10)
        if message == b"fail":
            raise RuntimeError("on purpose")
        if message == b"exit":
            raise SystemExit
        return b"echo " + (message or b"")


@pytest.fixture
def echo() -> Echo:
    return Echo()


@contextmanager
def serving(
    echo: Echo, executor: CompletionQueueThreadPool, **placement: Any
) -> Iterator[Callable[..., Any]]:
    """Run a server, and yield a function that begins a call to it."""

    def behavior(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        return echo.answer(executor.receive_first(messages, context))

    executor.register(behavior, **placement)
    method = grpc.stream_unary_rpc_method_handler(behavior)
    server = grpc.server(executor)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"m": method}),))
    port = server.add_insecure_port(f"{LOOPBACK}:0")
    executor.start(server)
    with grpc.insecure_channel(f"{LOOPBACK}:{port}") as channel:
        call = channel.stream_unary(METHOD)
        yield lambda messages: call.future(iter(messages), timeout=10)
        echo.gate.set()
        server.stop(5).wait()
    executor.shutdown()


def test_small_calls_run_in_the_thread_that_polls_once_they_are_known_to_be_quick(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_QUICK_SECONDS", "_VERY_SLOW_SECONDS"):
        monkeypatch.setattr(latency_tracker, name, 60)
    with serving(echo, CompletionQueueThreadPool(1)) as begin:
        for message in (*[b"1"] * 20, b"", b"2" * 10_000):
            assert begin([message]).result() == b"echo " + message
    # The first eight calls show how long a call takes.
    assert echo.threads == ["grpc-worker"] * 8 + ["grpc-poll"] * 13 + ["grpc-worker"]


def test_call_without_a_message_is_answered_too(echo: Echo) -> None:
    with serving(echo, CompletionQueueThreadPool(1)) as begin:
        assert begin([]).result() == b"echo "
    assert echo.messages == [None]


def test_at_most_the_given_number_of_calls_run_at_a_time(echo: Echo) -> None:
    with serving(echo, CompletionQueueThreadPool(3)) as begin:
        echo.gate.clear()
        begun = [begin([b"a"]) for _ in range(7)]
        for _ in range(3):
            assert echo.begun_calls.acquire(timeout=10)
        assert not echo.begun_calls.acquire(timeout=0.1)
        echo.gate.set()
        assert [call.result() for call in begun] == [b"echo a"] * 7


def test_calls_that_wait_after_many_quick_ones_run_at_the_same_time(echo: Echo) -> None:
    with serving(echo, CompletionQueueThreadPool(3)) as begin:
        for _ in range(200):
            assert begin([b"a"]).result() == b"echo a"
            assert echo.begun_calls.acquire(timeout=10)
        echo.gate.clear()
        begun = [begin([b"b"]) for _ in range(3)]
        for _ in range(3):
            assert echo.begun_calls.acquire(timeout=10)
        echo.gate.set()
        assert [call.result() for call in begun] == [b"echo b"] * 3


@pytest.mark.parametrize("is_quick", [True, False])
def test_quick_method_runs_while_all_threads_are_busy(echo: Echo, is_quick: bool) -> None:
    with serving(echo, CompletionQueueThreadPool(1), is_quick=is_quick) as begin:
        echo.gate.clear()
        begun = [begin([b"a"]) for _ in range(2)]
        assert echo.begun_calls.acquire(timeout=10)
        assert echo.begun_calls.acquire(timeout=10 if is_quick else 0.1) == is_quick
        echo.gate.set()
        assert [call.result() for call in begun] == [b"echo a"] * 2


def test_quick_method_runs_in_a_worker_if_its_message_may_take_long(echo: Echo) -> None:
    messages = (b"1", b"2" * 10_000, gzip.compress(b"3"))
    with serving(echo, CompletionQueueThreadPool(1), is_quick=True) as begin:
        assert [begin([each]).result() for each in messages] == [b"echo " + m for m in messages]
    assert echo.threads == ["grpc-poll", "grpc-worker", "grpc-worker"]


def test_calls_of_a_model_wait_for_each_other_and_not_those_of_another(echo: Echo) -> None:
    queues = RequestQueues(lambda name: RunLimits(max_concurrent_runs=1))
    executor = CompletionQueueThreadPool(4, queues=queues)
    with serving(echo, executor, read_model_name=bytes.decode) as begin:
        echo.gate.clear()
        running = begin([b"slow"])
        assert echo.begun_calls.acquire(timeout=10)
        waiting = begin([b"slow"])
        assert wait_for(lambda: queues.count_waiting()[("slow",)] == 1)
        other = begin([b"other"])
        assert echo.begun_calls.acquire(timeout=10)
        assert echo.messages == [b"slow", b"other"]
        echo.gate.set()
        assert [call.result() for call in (running, waiting, other)] == [
            b"echo slow",
            b"echo slow",
            b"echo other",
        ]


def test_thread_survives_a_method_that_raises(echo: Echo) -> None:
    with serving(echo, CompletionQueueThreadPool(1)) as begin:
        assert begin([b"fail"]).exception().code() == grpc.StatusCode.UNKNOWN
        assert begin([b"a"]).result() == b"echo a"


def test_stalled_call_takes_no_thread_and_is_cancelled(echo: Echo) -> None:
    clock, end = Clock(), threading.Event()
    executor = CompletionQueueThreadPool(1, StalledCallLimits(clock=clock))

    def never() -> Iterator[bytes]:
        end.wait(10)
        yield from ()

    with serving(echo, executor) as begin:
        stalled = [begin(never()) for _ in range(3)]
        assert begin([b"a"]).result() == b"echo a"
        # Wait until the three calls have arrived: a call that arrives after the change of the clock
        # would not be late.
        assert wait_for(lambda: len(executor._reaper.calls_waiting_longer_than(-1)) == 3)
        assert echo.messages == [b"a"]
        clock.now = 11
        assert [call.exception().code() for call in stalled] == [grpc.StatusCode.CANCELLED] * 3
        assert begin([b"a"]).result() == b"echo a"
        end.set()


def alive() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("grpc-")}


def wait_for(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not is_so() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    return is_so()


def test_threads_end_with_the_server(echo: Echo) -> None:
    before = alive()
    with serving(echo, CompletionQueueThreadPool(4)) as begin:
        assert begin([b"a"]).result() == b"echo a"
        # Compare with <=, because threads of other tests may end at the same time.
        assert alive() - before
    assert wait_for(lambda: alive() <= before)


def test_cancelled_calls_leave_no_state_behind(echo: Echo) -> None:
    executor = CompletionQueueThreadPool(2)
    with serving(echo, executor) as begin:
        echo.gate.clear()
        # The client will cancel every other call: two of the calls may run then, the others wait.
        begun = [begin([b"a"]) for _ in range(50)]
        for _ in range(2):
            assert echo.begun_calls.acquire(timeout=10)
        for call in begun[::2]:
            call.cancel()
        echo.gate.set()
        assert [call.result() for call in begun[1::2]] == [b"echo a"] * 25
        assert wait_for(lambda: not executor._server_state.rpc_states)
        assert not executor._reaper.has_waiting_calls


def test_server_without_references_ends() -> None:
    before = alive()
    executor = CompletionQueueThreadPool(1)
    server = grpc.server(executor)
    executor.start(server)
    assert alive() - before
    del server
    # All threads that poll end. The others belong to the executor and end with `shutdown`.
    others = {"grpc-watch", "grpc-resume", "grpc-worker_0", "grpc-large-response_0"}
    assert wait_for(lambda: {thread.name for thread in alive() - before} <= others)
    executor.shutdown()


@pytest.mark.parametrize("is_made_as_expected", [True, False])
def test_server_works_with_any_grpcio(
    dataplane: Any, monkeypatch: pytest.MonkeyPatch, is_made_as_expected: bool
) -> None:
    monkeypatch.setattr(grpcio_compat, "supports_direct_polling", lambda: is_made_as_expected)
    with clients.serving(dataplane) as server, clients.connect(server.address) as client:
        assert list(client.predict(x=[1.0]).outputs["y"].float_val) == [2.5]
        assert client.status(name="half")[0].version == 3


def test_call_that_cannot_be_submitted_is_cancelled_and_the_next_is_answered(echo: Echo) -> None:
    class Full(CompletionQueueThreadPool):
        num_failures = 1

        def submit(self, *args: Any) -> Any:
            if self.num_failures:
                self.num_failures -= 1
                raise RuntimeError("can't start new thread")
            return super().submit(*args)

    with serving(echo, Full(1)) as begin:
        assert begin([b"a"]).exception().code() == grpc.StatusCode.CANCELLED
        assert begin([b"b"]).result() == b"echo b"


def test_call_that_its_pool_rejects_is_cancelled_and_the_next_is_answered(echo: Echo) -> None:
    class Closed(ThreadPool):
        num_failures = 1

        def run_soon(self, *args: Any) -> None:
            if self.num_failures:
                self.num_failures -= 1
                raise RuntimeError("cannot schedule new futures after shutdown")
            super().run_soon(*args)

    with Closed(1, "pool") as pool, serving(echo, CompletionQueueThreadPool(1), pool=pool) as begin:
        assert begin([b"a"]).exception().code() == grpc.StatusCode.CANCELLED
        assert begin([b"b"]).result() == b"echo b"


def test_call_without_a_worker_is_cancelled_and_runs_no_longer(echo: Echo) -> None:
    class Closed(ThreadPool):
        def run_soon(self, *args: Any) -> None:
            raise RuntimeError("cannot schedule new futures after shutdown")

    queues = RequestQueues()
    executor = CompletionQueueThreadPool(1, queues=queues)
    workers = executor._workers
    with serving(echo, executor) as begin, Closed(1, "closed") as closed:
        executor._workers = closed
        assert begin([b"a"]).exception().code() == grpc.StatusCode.CANCELLED
        assert queues.count_in_flight() == {("",): 0}
        executor._workers = workers
        assert begin([b"b"]).result() == b"echo b"


def test_thread_survives_a_method_that_exits(echo: Echo) -> None:
    executor = CompletionQueueThreadPool(1)
    with serving(echo, executor) as begin:
        call = begin([b"exit"])
        assert echo.begun_calls.acquire(timeout=10)
        call.cancel()
        assert begin([b"a"]).result() == b"echo a"
