"""Health checks report the services, and report NOT_SERVING before the server stops."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from server.dataplane import DataPlane
from tests.server.frontends.grpc import clients

SERVING, NOT_SERVING, UNKNOWN = 1, 2, 3


@pytest.fixture
def server(dataplane: DataPlane) -> Iterator[Any]:
    with clients.serving(dataplane, enable_grpc_healthcheck_service=True) as server:
        yield server


@pytest.fixture
def stub(server: Any) -> Iterator[Any]:
    from grpc_health.v1 import health_pb2_grpc

    with clients.connect(server.address) as client:
        yield health_pb2_grpc.HealthStub(client.channel)


def request(service: str) -> Any:
    from grpc_health.v1 import health_pb2

    return health_pb2.HealthCheckRequest(service=service)


@pytest.mark.parametrize("service", ["", "ModelService", "PredictionService"])
def test_services_have_names_without_a_package(stub: Any, service: str) -> None:
    assert stub.Check(request(service), timeout=10).status == SERVING


def test_list_has_the_status_of_every_name(server: Any, stub: Any) -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from grpc_health.v1 import health_pb2

    # Define HealthListResponse here, because old releases of grpcio-health-checking lack it.
    file = descriptor_pb2.FileDescriptorProto(
        name="list.proto", package="l", dependency=[health_pb2.DESCRIPTOR.name], syntax="proto3"
    )
    response = file.message_type.add(name="Response")
    response.field.add(name="statuses", number=1, label=3, type=11, type_name=".l.Response.Entry")
    entry = response.nested_type.add(name="Entry")
    entry.field.add(name="key", number=1, label=1, type=9)
    check = ".grpc.health.v1.HealthCheckResponse"
    entry.field.add(name="value", number=2, label=1, type=11, type_name=check)
    entry.options.map_entry = True
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(health_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    message_class: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("l.Response"))
    with clients.connect(server.address) as client:
        ask = client.channel.unary_unary("/grpc.health.v1.Health/List")
        for drain, status in ((lambda: None, SERVING), (server.drain, NOT_SERVING)):
            drain()
            statuses = message_class.FromString(ask(b"", timeout=10)).statuses
            assert {name: value.status for name, value in statuses.items()} == dict.fromkeys(
                ["", "ModelService", "PredictionService", "inference.GRPCInferenceService"], status
            )


def test_unknown_service_is_not_found(stub: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(request("tensorflow.serving.ModelService"), timeout=10)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert next(stub.Watch(request("other"), timeout=10)).status == UNKNOWN


def test_watcher_gets_not_serving_before_the_server_stops(stub: Any, server: Any) -> None:
    responses = stub.Watch(request(""), timeout=30)
    assert next(responses).status == SERVING
    server.drain()
    server.stop()
    assert [response.status for response in responses] == [NOT_SERVING]
    server.join()


def test_pause_is_reported_until_it_ends(stub: Any, server: Any) -> None:
    responses, unknown = stub.Watch(request(""), timeout=30), stub.Watch(request("x"), timeout=30)
    assert next(responses).status == SERVING
    assert next(unknown).status == UNKNOWN
    for is_serving, status in ((False, NOT_SERVING), (True, SERVING)):
        server.report_health(is_serving)
        server.report_health(is_serving)
        assert next(responses).status == status
        assert stub.Check(request(""), timeout=10).status == status
    server.drain()
    server.report_health(True)
    assert stub.Check(request(""), timeout=10).status == NOT_SERVING
    assert [response.status for response in responses] == [NOT_SERVING]
    assert list(unknown) == []


def test_more_watchers_than_threads_do_not_block_checks(stub: Any) -> None:
    streams = [stub.Watch(request(""), timeout=30) for _ in range(20)]
    assert {next(stream).status for stream in streams} == {SERVING}
    assert stub.Check(request(""), timeout=10).status == SERVING
    for stream in streams:
        stream.cancel()


def test_watchers_that_leave_during_the_drain_do_not_delay_it(dataplane: DataPlane) -> None:
    from grpc_health.v1 import health_pb2_grpc

    for _ in range(10):
        with (
            clients.serving(dataplane, enable_grpc_healthcheck_service=True) as server,
            clients.connect(server.address) as client,
        ):
            stub = health_pb2_grpc.HealthStub(client.channel)
            streams = [stub.Watch(request(""), timeout=30) for _ in range(20)]
            assert {next(stream).status for stream in streams} == {SERVING}
            for stream in streams:
                stream.cancel()
            server.stop()
            server.join()


def test_health_service_is_off_by_default(dataplane: DataPlane) -> None:
    from grpc_health.v1 import health_pb2_grpc

    with (
        clients.serving(dataplane) as server,
        clients.connect(server.address) as client,
        pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"),
    ):
        health_pb2_grpc.HealthStub(client.channel).Check(request(""), timeout=10)
