"""Open streams and rejected calls do not block other calls."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.dataplane import DataPlane
from tests.server.fakes import FakeLoader
from tests.server.frontends.grpc import clients
from tests.server.frontends.grpc.clients import predict_request

PREDICT = "/tensorflow.serving.PredictionService/Predict"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
KEY = [("authorization", "Bearer sesame")]


def call_status(channel: grpc.Channel, message: bytes, metadata: list[tuple[str, str]]) -> str:
    call = channel.unary_unary(PREDICT).future(message, timeout=10, metadata=metadata)
    return "OK" if call.exception() is None else str(call.code().name)


@pytest.mark.parametrize("allow_direct_polling", [True, False])
def test_watchers_stalled_streams_and_rejections_do_not_block_calls(
    dataplane: DataPlane,
    loader: FakeLoader,
    tmp_path: Path,
    allow_direct_polling: bool,
) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    (tmp_path / "keys").write_text("sesame\n")
    keys, admission, model = ApiKeys(tmp_path / "keys"), AdmissionController(1), loader.models[3]
    end = threading.Event()

    def nothing() -> Iterator[bytes]:
        end.wait()
        yield from ()

    request = predict_request(x=np.array([1], np.float32)).SerializeToString()
    with (
        clients.serving(
            dataplane,
            keys=keys,
            admission=admission,
            grpc_max_threads=2,
            enable_grpc_healthcheck_service=True,
            allow_direct_polling=allow_direct_polling,
        ) as server,
        grpc.insecure_channel(server.address) as channel,
        ExitStack() as stack,
    ):
        stack.callback(end.set)
        stub = health_pb2_grpc.HealthStub(channel)
        for _ in range(200):
            watcher = stub.Watch(health_pb2.HealthCheckRequest(), metadata=KEY)
            stack.callback(watcher.cancel)
            assert next(watcher).status == 1
        for method in [WATCH] * 40 + [REFLECT] * 20:
            stalled = channel.stream_stream(method)(nothing(), metadata=KEY)
            stack.callback(stalled.cancel)
        for _ in range(50):
            assert call_status(channel, request, []) == "UNAUTHENTICATED"
            assert call_status(channel, request, KEY) == "OK"
            admission.wait_until_idle(10)
        model.gate.clear()
        model.has_begun.clear()
        running = channel.unary_unary(PREDICT).future(request, timeout=20, metadata=KEY)
        assert model.has_begun.wait(10)
        assert call_status(channel, request, KEY) == "RESOURCE_EXHAUSTED"
        assert stub.Check(health_pb2.HealthCheckRequest(), 10, metadata=KEY).status == 1
        model.gate.set()
        assert running.exception() is None
