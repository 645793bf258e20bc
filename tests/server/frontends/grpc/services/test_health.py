"""Health says whether to send requests here, and stops saying so first."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from server.dataplane import DataPlane
from tests.server.frontends.grpc import clients

pytestmark = pytest.mark.slow

SERVING, NOT_SERVING, UNKNOWN = 1, 2, 3


@pytest.fixture
def server(dataplane: DataPlane) -> Iterator[Any]:
    with clients.serving(dataplane, enable_grpc_healthcheck_service=True) as server:
        yield server


@pytest.fixture
def stub(server: Any) -> Iterator[Any]:
    from grpc_health.v1 import health_pb2_grpc

    with clients.client_of(server.address) as client:
        yield health_pb2_grpc.HealthStub(client.channel)


def request(service: str) -> Any:
    from grpc_health.v1 import health_pb2

    return health_pb2.HealthCheckRequest(service=service)


@pytest.mark.parametrize("service", ["", "ModelService", "PredictionService"])
def test_services_are_known_by_their_bare_names(stub: Any, service: str) -> None:
    assert stub.Check(request(service), timeout=10).status == SERVING


def test_other_services_are_not_known(stub: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(request("tensorflow.serving.ModelService"), timeout=10)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert next(stub.Watch(request("other"), timeout=10)).status == UNKNOWN


def test_who_watches_is_told_of_the_end_before_it_comes(stub: Any, server: Any) -> None:
    watched = stub.Watch(request(""), timeout=30)
    assert next(watched).status == SERVING
    server.drain()
    server.stop()
    assert [each.status for each in watched] == [NOT_SERVING]
    server.join()


def test_more_watchers_than_threads_stop_nobody(stub: Any) -> None:
    watching = [stub.Watch(request(""), timeout=30) for _ in range(20)]
    assert {next(each).status for each in watching} == {SERVING}
    assert stub.Check(request(""), timeout=10).status == SERVING
    for each in watching:
        each.cancel()


def test_watchers_that_leave_while_it_drains_do_not_hold_it_up(dataplane: DataPlane) -> None:
    from grpc_health.v1 import health_pb2_grpc

    for _ in range(10):
        with (
            clients.serving(dataplane, enable_grpc_healthcheck_service=True) as server,
            clients.client_of(server.address) as client,
        ):
            stub = health_pb2_grpc.HealthStub(client.channel)
            watching = [stub.Watch(request(""), timeout=30) for _ in range(20)]
            assert {next(each).status for each in watching} == {SERVING}
            for each in watching:
                each.cancel()
            server.stop()
            server.join()


def test_health_is_off_unless_it_is_asked_for(dataplane: DataPlane) -> None:
    from grpc_health.v1 import health_pb2_grpc

    with (
        clients.serving(dataplane) as server,
        clients.client_of(server.address) as client,
        pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"),
    ):
        health_pb2_grpc.HealthStub(client.channel).Check(request(""), timeout=10)
