"""Calls without a message do not count as requests in flight, and cannot block the server."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import numpy as np
import pytest

from server.admission.admission import AdmissionController
from server.dataplane import DataPlane
from tests.server.fakes import FakeLoader
from tests.server.frontends.grpc import clients

PREDICT = "/tensorflow.serving.PredictionService/Predict"
# Gives each channel a connection of its own; by default, channels to one address share one.
OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)


class Attacker:
    """Begins calls on one connection without sending a message."""

    def __init__(self, address: str) -> None:
        self._end = threading.Event()
        self._channel = grpc.insecure_channel(address, [OWN_CONNECTION])
        self._calls: list[Any] = []

    def begin(self, count: int) -> None:
        method = self._channel.stream_unary(PREDICT)
        self._calls += [method.future(self._nothing()) for _ in range(count)]

    def _nothing(self) -> Iterator[bytes]:
        self._end.wait()
        yield from ()

    def close(self) -> None:
        self._end.set()
        self._channel.close()


@pytest.mark.slow
@pytest.mark.parametrize("allow_direct_polling", [True, False])
def test_calls_without_message_neither_count_nor_block(
    dataplane: DataPlane, allow_direct_polling: bool
) -> None:
    admission = AdmissionController(4, 1)
    with (
        clients.serving(
            dataplane,
            admission=admission,
            max_requests_in_flight=4,
            allow_direct_polling=allow_direct_polling,
        ) as server,
        clients.connect(server.address, None, OWN_CONNECTION) as client,
        ExitStack() as stack,
    ):
        attacker = Attacker(server.address)
        stack.callback(attacker.close)
        attacker.begin(100)
        for _ in range(20):
            assert list(client.predict(x=[1.0]).outputs["y"].float_val) == [2.5]
            assert admission.wait_until_idle(10)


@pytest.mark.parametrize("allow_direct_polling", [True, False])
def test_one_client_gets_at_most_its_share(
    dataplane: DataPlane, loader: FakeLoader, allow_direct_polling: bool
) -> None:
    admission, model = AdmissionController(8, 2), loader.models[3]
    request = clients.predict_request(x=np.array([1], np.float32)).SerializeToString()
    with (
        clients.serving(
            dataplane, admission=admission, allow_direct_polling=allow_direct_polling
        ) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        model.gate.clear()
        begun = [channel.unary_unary(PREDICT).future(request, timeout=30) for _ in range(3)]
        # Two calls enter the model; the third is refused.
        refused = next(call for call in wait_for_first(begun))
        assert refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "--max_requests_in_flight_per_peer is 2" in refused.details()
        model.gate.set()
        assert sum(call.exception() is None for call in begun) == 2
        assert admission.wait_until_idle(10)


def wait_for_first(calls: list[Any]) -> list[Any]:
    has_ended = threading.Event()
    for call in calls:
        call.add_done_callback(lambda _: has_ended.set())
    assert has_ended.wait(10)
    return [call for call in calls if call.done()]


def test_connection_cannot_have_more_open_calls_than_its_share(dataplane: DataPlane) -> None:
    with (
        clients.serving(
            dataplane, admission=AdmissionController(8, 2), max_requests_in_flight=8
        ) as server,
        ExitStack() as stack,
    ):
        attacker = Attacker(server.address)
        stack.callback(attacker.close)
        attacker.begin(300)
        with clients.connect(server.address, None, OWN_CONNECTION) as client:
            assert list(client.predict(x=[1.0]).outputs["y"].float_val) == [2.5]
        # A client may have a quarter of the 8 requests in flight, and 100 further open calls.
        assert len(server._executor._reaper.calls_waiting_longer_than(-1)) <= 102
