"""A new service is one class and one registration: metrics, health and reflection follow."""

from collections.abc import Iterator, Mapping

import grpc
import pytest

from server.admission.admission import AdmissionController
from server.dataplane import DataPlane
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.services.call_handler import UnaryMethod
from server.frontends.grpc.services.registry import SERVICE_TYPES
from server.frontends.grpc.services.service import UnaryService
from server.metrics import Metrics
from tests.server.frontends.grpc import clients


class EchoService(UnaryService):
    """A new service, which only these tests add to the server."""

    names = ("test.EchoService",)
    health_names = ("test.EchoService", "Echo")
    counted_apis = ("Echo",)
    is_admission_controlled = True

    def methods(self) -> Mapping[str, UnaryMethod]:
        def echo(raw: bytes | memoryview, call: CallContext) -> bytes:
            return b"echo " + raw

        return {"Echo": UnaryMethod(echo), "Quick": UnaryMethod(echo, is_quick=True)}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def admission() -> AdmissionController:
    return AdmissionController()


@pytest.fixture
def channel(
    dataplane: DataPlane, metrics: Metrics, admission: AdmissionController
) -> Iterator[grpc.Channel]:
    with (
        clients.serving(
            dataplane,
            metrics=metrics,
            admission=admission,
            enable_grpc_healthcheck_service=True,
            service_types=(*SERVICE_TYPES, EchoService),
        ) as server,
        clients.connect(server.address) as client,
    ):
        yield client.channel


def test_registered_service_is_answered_beside_the_others(channel: grpc.Channel) -> None:
    assert channel.unary_unary("/test.EchoService/Echo")(b"a", timeout=10) == b"echo a"
    assert channel.unary_unary("/test.EchoService/Quick")(b"b", timeout=10) == b"echo b"
    assert clients.Client(channel).status(name="half")[0].version == 3


def test_registered_service_has_a_health(channel: grpc.Channel) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    stub = health_pb2_grpc.HealthStub(channel)
    for name in ("test.EchoService", "Echo", "PredictionService", ""):
        assert stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10).status == 1


def test_registered_service_is_listed_by_reflection(channel: grpc.Channel) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    request = reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    (response,) = stub.ServerReflectionInfo(iter([request]), timeout=10)
    assert "test.EchoService" in {
        service.name for service in response.list_services_response.service
    }


def test_counted_methods_of_a_registered_service_are_in_the_metrics(
    channel: grpc.Channel, metrics: Metrics
) -> None:
    for method in ("Echo", "Quick"):
        channel.unary_unary(f"/test.EchoService/{method}")(b"a", timeout=10)
    text = metrics.exposition().decode()
    labels = 'API="Echo",entrypoint="GRPC",model_name=""'
    assert f":tensorflow:serving:request_latency_count{{{labels}}} 1" in text
    assert 'API="Quick"' not in text


def test_admission_limits_a_registered_service(
    channel: grpc.Channel, admission: AdmissionController
) -> None:
    admission.drain()
    with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
        channel.unary_unary("/test.EchoService/Echo")(b"a", timeout=10)
