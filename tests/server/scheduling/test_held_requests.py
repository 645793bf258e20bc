"""Requests for a model that is not in memory wait in its queue, and others run beside them."""

import math

import pytest

from server.scheduling.request_queues import RequestQueues
from server.scheduling.run_limits import RunLimits
from server.scheduling.ticket import RunPool
from tests.server.scheduling.test_request_queues import Clock, Request
from tpuserve.errors import QueueFull, TpuserveError, Unavailable


class Loads:
    """Loads that the test ends itself."""

    timeout_seconds = math.inf

    def __init__(self) -> None:
        self.requested: list[str] = []
        self.refusal: TpuserveError | None = None

    def is_lazy(self, name: str) -> bool:
        return name == "a"

    def request(self, model: str) -> TpuserveError | None:
        self.requested.append(model)
        return self.refusal

    def timeout_error(self, model: str) -> TpuserveError:
        return Unavailable(f"{model} is not loaded in time")


class Queues:
    """Queues of the model "a", which is held, and of the loaded model "b"."""

    def __init__(self, **limits: float) -> None:
        self.clock, self.loads, self.pool = Clock(), Loads(), RunPool(8)
        run_limits = RunLimits(max_concurrent_runs=2, **limits)  # type: ignore[arg-type]
        self.queues = RequestQueues(lambda name: run_limits, clock=self.clock, loads=self.loads)
        assert self.queues.hold("a")

    def send(self, model: str) -> Request:
        request = Request(model, self.pool)
        request.is_started = self.queues.submit(request)
        return request


def test_requests_of_a_held_model_ask_for_its_load_and_run_when_it_is_opened() -> None:
    queues = Queues()
    held, other = queues.send("a"), queues.send("b")
    assert (held.is_started, other.is_started) == (False, True)
    assert queues.loads.requested == ["a"]
    assert not queues.queues.try_start(Request("a", queues.pool))
    queues.queues.open("a")
    assert held.is_started


def test_model_is_held_only_when_it_is_idle_if_the_caller_wants_that() -> None:
    queues = Queues()
    running = queues.send("b")
    assert not queues.queues.hold("b", if_idle=True)
    queues.queues.finish(running)
    assert queues.queues.hold("b", if_idle=True)
    assert not queues.send("b").is_started


def test_limit_of_the_wait_for_a_run_does_not_count_while_the_model_loads() -> None:
    queues = Queues(max_queue_seconds=1.0)
    held = [queues.send("a") for _ in range(3)]
    queues.clock.now = 5
    queues.queues.refuse_expired()
    queues.queues.open("a")
    assert [request.is_started for request in held] == [True, True, False]
    assert queues.queues.next_expiry == 6
    queues.clock.now = 6
    queues.queues.refuse_expired()
    assert "longer than its max_queue_ms" in str(held[2].error)


def test_request_that_waits_longer_than_the_time_limit_of_loads_is_refused() -> None:
    queues = Queues()
    queues.loads.timeout_seconds = 2
    held = queues.send("a")
    queues.clock.now = 2
    assert queues.queues.refuse_expired() == math.inf
    assert str(held.error) == "a is not loaded in time"


def test_request_is_refused_at_once_if_the_model_cannot_be_loaded() -> None:
    queues = Queues()
    queues.loads.refusal = Unavailable("a cannot be loaded")
    with pytest.raises(Unavailable, match="a cannot be loaded"):
        queues.send("a")
    assert queues.queues.find_use("a").waiting == 0


def test_failed_load_refuses_all_waiting_requests_each_with_its_own_error() -> None:
    queues = Queues()
    held = [queues.send("a"), queues.send("a")]
    queues.queues.refuse_waiting("a", lambda: Unavailable("a cannot be loaded"))
    assert [str(request.error) for request in held] == ["a cannot be loaded"] * 2
    assert held[0].error is not held[1].error


def test_no_more_requests_wait_for_a_load_than_may_wait_for_a_run() -> None:
    queues = Queues(max_queue=1)
    queues.send("a")
    with pytest.raises(QueueFull):
        queues.send("a")


def test_use_of_a_model_is_told() -> None:
    queues = Queues()
    queues.clock.now = 3
    queues.send("b")
    queues.send("a")
    assert queues.queues.find_use("b") == (1, 0, 3.0)
    assert queues.queues.find_use("a") == (0, 1, 0.0)
    assert queues.queues.find_use("c") == (0, 0, 0.0)


def test_request_for_metadata_waits_in_the_queue_of_a_lazy_model_alone() -> None:
    queues = Queues().queues
    assert queues.find_description_queue("a") == "a"
    assert queues.find_description_queue("b") == ""
