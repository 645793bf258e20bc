"""Requests wait per model, run within their limits, and share the threads by run time."""

import math
import threading
import time
from collections.abc import Mapping

import pytest

from server.metrics import Metrics
from server.request import RequestContext
from server.scheduling.request_queues import RequestQueues
from server.scheduling.run_limits import RunLimits
from server.scheduling.ticket import RunnableTicket, RunPool, Ticket
from tpuserve.errors import Code, CodedError, QueueFull, TpuserveError, Unavailable


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Request(Ticket):
    """A ticket that only records whether it was started or refused."""

    def __init__(self, model: str, pool: RunPool, peer: str = "") -> None:
        super().__init__(RequestContext(model=model, peer=peer), pool)
        self.is_started = False
        self.error: TpuserveError | None = None

    def start(self) -> None:
        self.is_started = True

    def refuse(self, error: TpuserveError) -> None:
        self.error = error


class Queues:
    """Queues with a clock, and one pool of threads."""

    def __init__(self, limits: Mapping[str, RunLimits], threads: int = 8) -> None:
        self.clock = Clock()
        self.metrics = Metrics()
        self.limits = dict(limits)
        self.queues = RequestQueues(lambda name: self.limits.get(name), self.metrics, self.clock)
        self.pool = RunPool(threads)

    def send(
        self,
        model: str,
        pool: RunPool | None = None,
        peer: str = "",
    ) -> Request:
        request = Request(model, pool or self.pool, peer)
        request.is_started = self.queues.submit(request)
        return request

    def send_all(self, models: str) -> list[Request]:
        return [self.send(model) for model in models]

    def finish(self, request: Request, seconds: float = 0) -> Request | None:
        self.clock.now += seconds
        following = self.queues.finish(request)
        assert following is None or isinstance(following, Request)
        return following

    def sample(self, name: str) -> list[str]:
        lines = self.metrics.exposition().decode().splitlines()
        return [line for line in lines if line.startswith(f"tpuserve_{name}{{")]


def test_clients_of_a_model_take_turns() -> None:
    queues = Queues({"a": RunLimits(1)})
    running = queues.send("a")
    requests = [queues.send("a", peer=peer) for peer in "xxxy"]
    for number in (0, 3, 1, 2):
        following = queues.finish(running)
        assert following is requests[number]
        running = following


def list_started(requests: list[Request]) -> list[bool]:
    return [request.is_started for request in requests]


def test_model_runs_as_many_requests_as_it_may_and_others_run_beside_it() -> None:
    queues = Queues({"a": RunLimits(2), "b": RunLimits(2)})
    requests = queues.send_all("aaaab")
    assert list_started(requests) == [True, True, False, False, True]
    assert queues.finish(requests[4]) is None
    assert queues.finish(requests[1]) is requests[2]
    assert queues.finish(requests[0]) is requests[3]
    assert queues.finish(requests[2]) is queues.finish(requests[3]) is None


class RunnableRequest(Request, RunnableTicket):
    """A request that records its run."""

    is_run = False

    def run(self) -> None:
        self.is_run = True


def test_a_thread_runs_the_waiting_requests_that_may_run_after_its_first() -> None:
    queues = RequestQueues(lambda name: RunLimits(1))
    pool = RunPool(8)
    requests = [RunnableRequest("a", pool) for _ in range(3)]
    assert [queues.submit(request) for request in requests] == [True, False, False]
    queues.run(requests[0])
    assert [request.is_run for request in requests] == [True, True, True]


def test_threads_go_to_the_model_that_has_used_them_least() -> None:
    # One run of each model never ends, so that both compete for the third thread. A run of "a"
    # takes 1 s, a run of "b" takes 4 s. The virtual times (a, b) after each start below are:
    # b (1, 0), a (2, 4), a (3, 4), a (4, 4), b (4, 8), a (5, 8), a (6, 8), a (7, 8), a (8, 8), b.
    queues = Queues({"a": RunLimits(9), "b": RunLimits(9)}, threads=3)
    first = queues.send_all("aba")[2]
    waiting = queues.send_all("b" * 3 + "a" * 12)
    assert not any(list_started(waiting))
    order: list[str] = []
    following = queues.finish(first, 1)
    while following is not None and len(order) < 10:
        order.append(following.context.model)
        following = queues.finish(following, {"a": 1, "b": 4}[following.context.model])
    assert "".join(order) == "baaabaaaab"


def test_model_that_was_idle_has_no_claim_to_the_time_before() -> None:
    queues = Queues({name: RunLimits(9) for name in "abc"}, threads=4)
    busy = queues.send_all("aba")[2]
    for _ in range(100):
        queues.finish(busy, 1)
        busy = queues.send("a")
    assert queues.send("c").is_started
    assert not any(list_started(queues.send_all("aaaccc")))
    # "c" has the virtual time of "a" when it begins, and not a hundred seconds of credit.
    order: list[str] = []
    following = queues.finish(busy, 1)
    while following is not None:
        order.append(following.context.model)
        following = queues.finish(following, 1)
    assert sorted(order[:4]) == ["a", "a", "c", "c"]


def test_idle_model_begins_at_the_virtual_time_and_a_busy_one_at_most_a_second_before() -> None:
    queues = Queues({"slow": RunLimits(1), "busy": RunLimits(1), "idle": RunLimits(1)})
    assert queues.send("slow").queue.virtual_time == 0
    for _ in range(10):
        queues.finish(queues.send("busy"), 1)
    # The tenth run of "busy" began at the virtual time 9.
    queues.limits["slow"] = RunLimits(2)
    assert queues.send("slow").queue.virtual_time == 8
    assert queues.send("idle").queue.virtual_time == 9


def test_model_held_back_by_its_own_limit_catches_up_within_seconds() -> None:
    queues = Queues({"slow": RunLimits(1), "busy": RunLimits(9)}, threads=3)
    _, *others = [queues.send(name) for name in ("slow", "busy", "busy")]
    held_back = [queues.send("slow") for _ in range(8)]
    for _ in range(100):
        queues.finish(others[0], 1)
        others = [others[1], queues.send("busy")]
    queues.limits["slow"] = RunLimits(9)
    waiting = [*held_back, *[queues.send(name) for name in ("slow", *["busy"] * 8)]]
    assert not any(list_started(waiting))
    order: list[str] = []
    following = queues.finish(others[0], 1)
    while following is not None and len(order) < 8:
        order.append(following.context.model)
        following = queues.finish(following, 1)
    # Without the limit, "slow" would run for a hundred seconds.
    assert order[0] == "slow"
    assert "busy" in order


def test_a_model_of_which_nothing_runs_starts_though_all_threads_are_taken() -> None:
    queues = Queues({name: RunLimits(2) for name in "abc"}, threads=2)
    assert list_started(queues.send_all("aabbcc")) == [True, True, True, False, True, False]


def test_requests_for_unknown_models_share_one_queue() -> None:
    queues = Queues({}, threads=1)
    first, second, third = [queues.send(name) for name in ("x", "y", "")]
    assert list_started([first, second, third]) == [True, False, False]
    assert queues.finish(first) is second
    assert queues.sample("queue_size") == ['tpuserve_queue_size{model_name=""} 1']


def test_a_slot_goes_to_the_frontend_whose_request_came_first() -> None:
    queues = Queues({"a": RunLimits(1)})
    other = RunPool(8)
    running, there, here = queues.send("a"), queues.send("a", other), queues.send("a")
    assert queues.finish(running) is None
    assert (there.is_started, here.is_started) == (True, False)
    assert queues.finish(there) is None
    assert here.is_started


def test_requests_that_wait_for_a_batch_take_no_thread_from_others() -> None:
    queues = Queues({"batched": RunLimits(3, only_waits=True), "a": RunLimits(2)}, threads=2)
    batched = [queues.send("batched") for _ in range(4)]
    assert list_started(batched) == [True, True, True, False]
    assert list_started(queues.send_all("aaa")) == [True, True, False]
    assert queues.finish(batched[0], 9) is batched[3]


def test_a_pool_with_a_share_leaves_runs_to_the_other_requests_of_a_model() -> None:
    queues = Queues({"a": RunLimits(4), "single": RunLimits(1)})
    large = RunPool(8, share=0.5)
    requests = [queues.send("a", large) for _ in range(3)]
    assert list_started(requests) == [True, True, False]
    assert list_started(queues.send_all("aaa")) == [True, True, False]
    assert queues.finish(requests[0]) is requests[2]
    assert queues.send("single", large).is_started


def test_full_queue_refuses_and_the_refusal_is_counted() -> None:
    queues = Queues({"a": RunLimits(1, max_queue=2)})
    running, *_ = queues.send_all("aaa")
    with pytest.raises(QueueFull, match="2 requests for model a wait, and its max_queue is 2") as e:
        queues.send("a")
    assert e.value.code is Code.UNAVAILABLE
    assert queues.sample("requests_shed_total") == [
        'tpuserve_requests_shed_total{model_name="a",reason="queue full"} 1'
    ]
    queues.finish(running)
    queues.send("a")
    # A reload may lower the limit below the number of requests that wait.
    queues.limits["a"] = RunLimits(1, max_queue=1)
    with pytest.raises(QueueFull, match="2 requests for model a wait, and its max_queue is 1"):
        queues.send("a")


def test_what_has_waited_too_long_is_refused_and_the_others_keep_their_place() -> None:
    queues = Queues({"a": RunLimits(1, max_queue_seconds=2), "b": RunLimits(1)})
    queues.clock.now = 10
    running, expiring = queues.send_all("aa")
    patient = queues.send_all("bb")[1]
    queues.clock.now = 11.5
    late = queues.send("a")
    assert queues.queues.refuse_expired() == 12
    assert expiring.error is None
    queues.clock.now = 12
    assert queues.queues.refuse_expired() == 13.5
    assert isinstance(expiring.error, CodedError)
    assert str(expiring.error).startswith("the request has waited for 2000 ms for model a, longer")
    assert (late.error, patient.error) == (None, None)
    assert queues.sample("requests_shed_total") == [
        'tpuserve_requests_shed_total{model_name="a",reason="waited too long"} 1'
    ]
    assert queues.finish(running) is late
    assert queues.queues.refuse_expired() == math.inf


def test_request_that_cannot_be_refused_keeps_no_other_from_being_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: TpuserveError) -> None:
        raise RuntimeError("on purpose")

    queues = Queues({"a": RunLimits(1, max_queue_seconds=2)})
    _, broken, expiring = queues.send_all("aaa")
    queues.clock.now = 1
    late = queues.send("a")
    monkeypatch.setattr(broken, "refuse", fail)
    queues.clock.now = 2
    assert queues.queues.refuse_expired() == 3
    assert isinstance(expiring.error, CodedError)
    assert late.error is None
    assert caplog.messages == ["a function that ends requests at their time limits has failed"]


def test_request_that_cannot_be_started_is_refused_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    queues = Queues({"a": RunLimits(1), "b": RunLimits(1)})
    other = RunPool(8)
    running, broken, after = queues.send("a"), queues.send("a", other), queues.send("a", other)
    monkeypatch.setattr(broken, "start", fail)
    assert queues.finish(running) is None
    assert isinstance(broken.error, Unavailable)
    assert after.is_started
    assert queues.queues.count_in_flight()["a",] == 1


def test_refusal_names_the_time_since_the_request_came() -> None:
    queues = Queues({"a": RunLimits(1, max_queue_seconds=2)})
    queues.clock.now = 10
    _, waiting = queues.send_all("aa")
    queues.clock.now = 35
    queues.queues.refuse_expired()
    assert str(waiting.error).startswith("the request has waited for 25000 ms for model a")


def test_the_queues_are_checked_when_the_first_request_expires() -> None:
    queues = Queues({"a": RunLimits(1), "b": RunLimits(1, max_queue_seconds=5)})
    queues.clock.now = 10
    queues.send_all("aab")
    assert queues.queues.next_expiry == math.inf
    queues.send("b")
    assert queues.queues.next_expiry == 15
    queues.clock.now = 12
    queues.send("b")
    assert queues.queues.next_expiry == 15


def test_close_ends_the_thread_of_the_queues() -> None:
    queues = RequestQueues()
    queues.close()
    queues = RequestQueues()
    queues.start()
    (watcher,) = (thread for thread in threading.enumerate() if thread.name == "queue-watch")
    # A daemon thread does not keep a process alive that ends without `close`.
    assert watcher.daemon
    queues.close()
    assert not watcher.is_alive()


@pytest.mark.parametrize("origin", [-100.0, 100.0])
def test_the_thread_of_the_queues_refuses_what_waits_too_long(origin: float) -> None:
    refused = threading.Event()

    class WaitingRequest(Request):
        def refuse(self, error: TpuserveError) -> None:
            super().refuse(error)
            refused.set()

    began = time.monotonic()
    limits = {
        "long": RunLimits(1, max_queue_seconds=100),
        "short": RunLimits(1, max_queue_seconds=0.01),
    }
    queues = RequestQueues(limits.get, clock=lambda: time.monotonic() - began + origin)
    queues.start()
    pool = RunPool(2)
    assert queues.submit(Request("long", pool))
    assert queues.submit(Request("short", pool))
    long, short = WaitingRequest("long", pool), WaitingRequest("short", pool)
    # The thread waits for the end of the long wait when the short one begins.
    assert not queues.submit(long)
    assert not queues.submit(short)
    assert refused.wait(30)
    assert isinstance(short.error, CodedError)
    assert long.error is None
    queues.close()


def test_withdrawn_request_leaves_room_and_never_runs() -> None:
    queues = Queues({"a": RunLimits(1, max_queue=2)})
    running, second, third = queues.send_all("aaa")
    assert queues.queues.withdraw(second)
    assert not queues.queues.withdraw(second)
    assert not queues.queues.withdraw(running)
    fourth = queues.send("a")
    assert queues.finish(running) is third
    assert queues.finish(third) is fourth
    assert queues.finish(fourth) is None
    assert not second.is_started


def test_requests_of_models_with_equal_run_time_start_in_the_order_in_which_they_came() -> None:
    queues = Queues({"a": RunLimits(9), "b": RunLimits(9), "c": RunLimits(9)}, threads=3)
    running, *_ = queues.send_all("cab")
    first, second, _ = queues.send_all("aba")
    # The remaining request for "a" came after the request for "b".
    queues.queues.withdraw(first)
    assert queues.finish(running) is second


def test_a_removed_model_counts_until_its_last_request_has_run() -> None:
    queues = Queues({"a": RunLimits(1), "b": RunLimits(1), "c": RunLimits(1)})
    running = queues.send("a")
    del queues.limits["a"]
    queues.send("b")
    assert queues.queues.count_in_flight() == {("",): 0, ("a",): 1, ("b",): 1}
    queues.finish(running)
    queues.send("c")
    assert queues.queues.count_in_flight() == {("",): 0, ("b",): 1, ("c",): 1}


def test_requests_in_flight_are_those_that_wait_or_run() -> None:
    queues = Queues({"a": RunLimits(1)})
    running, *_ = queues.send_all("aaa")
    assert queues.queues.count_waiting() == {("",): 0, ("a",): 2}
    assert queues.queues.count_in_flight() == {("",): 0, ("a",): 3}
    queues.finish(running)
    assert queues.queues.count_in_flight() == {("",): 0, ("a",): 2}


def test_limits_of_a_reload_hold_for_the_next_request() -> None:
    queues = Queues({"a": RunLimits(1), "gone": RunLimits(1)})
    first = queues.send("a")
    queues.finish(queues.send("gone"))
    queues.limits = {"a": RunLimits(2), "new": RunLimits(1)}
    assert queues.send("a").is_started
    queues.finish(first)
    queues.send("new")
    assert [line.partition('"')[2][:3] for line in queues.sample("queue_size")] == [
        '"} ',
        'a"}',
        "new",
    ]
