"""Batched requests are answered at once where nothing has to wait, and never in others' way."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from server.batching.runner import BatchingRunners
from server.config.batching_parameters import BatchingParameters
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.models.manager import Manager
from tests.server.aspiring import aspire
from tests.server.fakes import FakeLoader
from tests.server.frontends.rest.conftest import Serve
from tests.server.frontends.rest.transport.test_fast_path_protocol import slow_path as slow_path
from tests.server.frontends.rest.wire import Address, ask

pytestmark = pytest.mark.slow

PREDICT = "/v1/models/half:predict"
BODY = b'{"instances": [2]}'
ANSWER = b'{\n    "predictions": [3.0\n    ]\n}'


def batched(loader: FakeLoader, serve: Serve, timeout_micros: int = 0) -> Address:
    parameters = BatchingParameters(num_batch_threads=1, batch_timeout_micros=timeout_micros)
    runners = BatchingRunners(parameters)
    manager = Manager(loader, make_runner=runners.wrap)
    aspire(manager, "half", {3: Path("/models/half/3")})
    aspire(manager, "other", {4: Path("/models/other/4")})
    settings = Settings(Path("/models/half"), enable_batching=True)
    return serve(build_rest_app(DataPlane(manager), settings))


def asked(address: Address, times: int) -> None:
    for _ in range(times):
        assert ask(address, "POST", PREDICT, BODY)[1] == ANSWER


def test_what_is_due_at_once_passes_no_thread(
    loader: FakeLoader, serve: Serve, slow_path: list[str]
) -> None:
    address = batched(loader, serve)
    asked(address, 20)
    slow_path.clear()
    asked(address, 5)
    assert slow_path == []


def test_what_waits_for_others_is_handed_to_threads_and_soon_not_tried_otherwise(
    loader: FakeLoader, serve: Serve, slow_path: list[str]
) -> None:
    address = batched(loader, serve, timeout_micros=10)
    asked(address, 150)
    assert slow_path == [PREDICT] * 150


def test_nobody_waits_for_a_batch_of_another_model_but_who_must(
    loader: FakeLoader, serve: Serve, slow_path: list[str]
) -> None:
    address, other = batched(loader, serve), loader.models[4]
    asked(address, 20)
    slow_path.clear()
    other.gate.clear()
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(ask, address, "POST", "/v1/models/other:predict", BODY)
        assert other.entered.wait(10)
        waiting = pool.submit(ask, address, "POST", PREDICT, BODY)
        while len(slow_path) < 2 and not waiting.done():
            assert ask(address, "GET", "/healthz")[0].status == 200
        assert ask(address, "GET", "/healthz")[0].status == 200
        other.gate.set()
        assert [each.result()[1] for each in (slow, waiting)] == [ANSWER] * 2
