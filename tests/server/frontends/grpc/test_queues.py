"""Calls wait in the queue of their model; a full queue refuses further calls."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from server.admission.admission import AdmissionController
from server.dataplane import DataPlane
from server.models.manager import Manager
from server.scheduling.request_queues import RequestQueues
from server.scheduling.run_limits import RunLimits
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeModel
from tests.server.frontends.grpc import clients

PREDICT = "/tensorflow.serving.PredictionService/Predict"
LIMITS = RunLimits(max_concurrent_runs=1, max_queue=1)


class Server:
    """A server with a slow and a quick model, and methods that begin calls to the models."""

    def __init__(self, channel: grpc.Channel, slow: FakeModel, queues: RequestQueues) -> None:
        self._predict = channel.unary_unary(PREDICT)
        self.slow = slow
        self.queues = queues

    def begin(
        self, model: str, timeout_seconds: float | None = 30, first_fields: bytes = b""
    ) -> Any:
        x = np.array([1], np.float32)
        request = clients.predict_request(spec={"name": model}, x=x).SerializeToString()
        return self._predict.future(first_fields + request, timeout=timeout_seconds)

    def begin_waiting(self) -> Any:
        """Begin a call that waits in the queue of the slow model."""
        call = self.begin("slow")
        changed = threading.Event()
        while self.queues.count_waiting()[("slow",)] == 0:
            changed.wait(0.01)
        return call


@pytest.fixture(params=[True, False], ids=["polling threads", "default threads"])
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Server]]:
    slow, quick = FakeModel(), FakeModel()
    manager = Manager(lambda directory: slow if directory.parent.name == "slow" else quick)
    for name in ("slow", "quick"):
        aspire(manager, name, {1: Path("/models", name, "1")})
    slow.gate.clear()
    slow.has_begun.clear()
    with ExitStack() as stack:

        def start(limits: RunLimits, **settings: Any) -> Server:
            queues = RequestQueues(lambda name: limits)
            queues.start()
            server = stack.enter_context(
                clients.serving(
                    DataPlane(manager),
                    admission=AdmissionController(100),
                    queues=queues,
                    grpc_max_threads=2,
                    allow_direct_polling=request.param,
                    **settings,
                )
            )
            stack.callback(queues.close)
            stack.callback(slow.gate.set)
            channel = stack.enter_context(grpc.insecure_channel(server.address))
            return Server(channel, slow, queues)

        yield start


def test_calls_of_a_blocked_model_wait_and_another_model_answers(start: Any) -> None:
    server = start(LIMITS)
    running = server.begin("slow")
    assert server.slow.has_begun.wait(30)
    waiting = server.begin_waiting()
    assert server.begin("slow").code() is grpc.StatusCode.UNAVAILABLE
    assert [server.begin("quick").code() for _ in range(3)] == [grpc.StatusCode.OK] * 3
    server.slow.gate.set()
    assert [call.code() for call in (running, waiting)] == [grpc.StatusCode.OK] * 2


def test_call_that_waits_too_long_is_refused(start: Any) -> None:
    server = start(RunLimits(max_concurrent_runs=1, max_queue_seconds=0.05))
    running = server.begin("slow")
    assert server.slow.has_begun.wait(30)
    refused = server.begin("slow")
    assert refused.code() is grpc.StatusCode.UNAVAILABLE
    assert "longer than its max_queue_ms" in refused.details()
    server.slow.gate.set()
    assert running.code() is grpc.StatusCode.OK


def test_waiting_call_without_a_deadline_ends_after_the_default_time_limit(start: Any) -> None:
    server = start(LIMITS, default_request_timeout_ms=50)
    running = server.begin("slow")
    assert server.slow.has_begun.wait(30)
    refused = server.begin("slow", timeout_seconds=None)
    assert refused.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "the time limit of the request has passed" in refused.details()
    server.slow.gate.set()
    assert running.code() is grpc.StatusCode.OK


def test_the_wait_in_the_queue_counts_against_the_default_time_limit(start: Any) -> None:
    server = start(LIMITS, default_request_timeout_ms=20_000)
    running = server.begin("slow")
    assert server.slow.has_begun.wait(30)
    waiting = server.begin("slow", timeout_seconds=None)
    while server.queues.count_waiting()[("slow",)] == 0:
        time.sleep(0.01)
    time.sleep(0.1)
    server.slow.gate.set()
    assert [call.code() for call in (running, waiting)] == [grpc.StatusCode.OK] * 2
    assert (server.slow.timeout_ms or 20_000) <= 19_900


def test_call_whose_model_is_found_too_late_for_its_queue_does_not_run(start: Any) -> None:
    server = start(LIMITS)
    # Field 15 is unknown: each of its values is a field of two bytes.
    assert server.begin("quick", first_fields=b"\x78\x00" * 255).code() is grpc.StatusCode.OK
    refused = server.begin("quick", first_fields=b"\x78\x00" * 256)
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "'quick', comes after too many other fields" in refused.details()


def test_cancelled_call_leaves_room_in_the_queue(start: Any) -> None:
    server = start(LIMITS)
    running = server.begin("slow")
    assert server.slow.has_begun.wait(30)
    server.begin_waiting().cancel()
    changed = threading.Event()
    while server.queues.count_waiting()[("slow",)] > 0:
        changed.wait(0.01)
    following = server.begin_waiting()
    server.slow.gate.set()
    assert [call.code() for call in (running, following)] == [grpc.StatusCode.OK] * 2


def test_call_that_needs_a_run_of_its_own_is_answered_beside_one_that_waits(start: Any) -> None:
    server = start(RunLimits(max_concurrent_runs=8, only_waits=True))
    waiting = server.begin("slow")
    assert server.slow.has_begun.wait(30)
    assert [server.begin("quick").code() for _ in range(3)] == [grpc.StatusCode.OK] * 3
    server.slow.gate.set()
    assert waiting.code() is grpc.StatusCode.OK
