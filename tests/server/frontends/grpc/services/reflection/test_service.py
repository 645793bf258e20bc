"""Server reflection lists the services and describes their messages."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from server.dataplane import DataPlane
from tests.server.frontends.grpc import clients

SERVICES = {
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
    "tensorflow.ProfilerService",
    "inference.GRPCInferenceService",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
}


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_services_are_listed_and_described(dataplane: DataPlane, version: str) -> None:
    from google.protobuf import descriptor_pb2
    from grpc_reflection.v1alpha import reflection_pb2

    with clients.serving(dataplane) as server, clients.connect(server.address) as client:
        ask = client.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        name = "tensorflow.serving.PredictionService"
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=name),
        ]
        listed, described = ask(iter(requests), timeout=10)
    assert {service.name for service in listed.list_services_response.service} == SERVICES
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(serialized)
        for serialized in described.file_descriptor_response.file_descriptor_proto
    ]
    methods = {m.name for file in files for service in file.service for m in service.method}
    assert {"Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata"} <= methods


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_each_listed_service_is_described(dataplane: DataPlane, version: str) -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool
    from grpc_reflection.v1alpha import reflection_pb2

    services = [*SERVICES, "grpc.health.v1.Health"]
    with (
        clients.serving(dataplane, enable_grpc_healthcheck_service=True) as server,
        clients.connect(server.address) as client,
    ):
        ask = client.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        requests = [
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=name) for name in services
        ]
        answers = list(ask(iter(requests), timeout=30))
    for name, answer in zip(services, answers, strict=True):
        files = [
            descriptor_pb2.FileDescriptorProto.FromString(serialized)
            for serialized in answer.file_descriptor_response.file_descriptor_proto
        ]
        # Check that the files are complete: build the service from them in an empty descriptor
        # pool.
        pool, pending = descriptor_pool.DescriptorPool(), {file.name: file for file in files}
        while pending:
            ready = [file for file in pending.values() if not pending.keys() & set(file.dependency)]
            for file in ready:
                pool.Add(pending.pop(file.name))
        assert pool.FindServiceByName(name).methods


def test_disabled_service_is_unimplemented(dataplane: DataPlane) -> None:
    with (
        clients.serving(dataplane, enable_profiler=False) as server,
        clients.connect(server.address) as client,
        pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"),
    ):
        client.channel.unary_unary("/tensorflow.ProfilerService/Monitor")(b"", timeout=10)


def test_open_streams_end_when_the_server_drains(dataplane: DataPlane) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    end = threading.Event()

    def one() -> Iterator[Any]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        end.wait()

    with clients.serving(dataplane) as server, clients.connect(server.address) as client:
        stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
        before = stub.ServerReflectionInfo(one(), timeout=10)
        assert next(before).list_services_response.service
        server.drain()
        after = stub.ServerReflectionInfo(one(), timeout=10)
        for stream in (before, after):
            with pytest.raises(grpc.RpcError, match="CANCELLED"):
                next(stream)
        end.set()
