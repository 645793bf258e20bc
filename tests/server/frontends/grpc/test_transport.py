"""TLS, UNIX sockets, message sizes, API keys and limits, over real connections."""

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.config.tls import TlsConfig
from server.dataplane import DataPlane
from server.process import ports
from tests.server.certificates import Authority
from tests.server.fakes import FakeLoader
from tests.server.frontends.grpc import clients
from tests.server.frontends.grpc.clients import predict_request

X = np.array([1, 2, 5], np.float32)
Y = [2.5, 3.0, 4.5]
PREDICT = "/tensorflow.serving.PredictionService/Predict"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"


def eventually(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)


def values(client: clients.Client) -> list[float]:
    return list(client.predict(x=X).outputs["y"].float_val)


def test_tls_serves_clients_that_trust_the_authority(dataplane: DataPlane) -> None:
    authority = Authority()
    own = authority.identity()
    with clients.serving(dataplane, tls=TlsConfig(own.key, own.certificate)) as server:
        with clients.connect(
            server.address, grpc.ssl_channel_credentials(authority.certificate)
        ) as client:
            assert values(client) == Y
        with (
            clients.connect(server.address) as plain,
            pytest.raises(grpc.RpcError, match="UNAVAILABLE"),
        ):
            values(plain)


def test_mutual_tls_serves_clients_with_a_certificate(dataplane: DataPlane) -> None:
    authority, stranger = Authority(), Authority()
    own, known, unknown = authority.identity(), authority.identity(), stranger.identity()
    tls = TlsConfig(own.key, own.certificate, authority.certificate, client_verify=True)
    with clients.serving(dataplane, tls=tls) as server:

        def ask(*identity: bytes) -> list[float]:
            credentials = grpc.ssl_channel_credentials(authority.certificate, *identity)
            with clients.connect(server.address, credentials) as client:
                return values(client)

        assert ask(known.key, known.certificate) == Y
        for refused in ((), (unknown.key, unknown.certificate)):
            with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
                ask(*refused)


def test_unix_socket_serves_with_and_without_a_port(dataplane: DataPlane) -> None:
    # The path of a UNIX socket may have about 100 characters, so use a short directory.
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/socket"
        for has_port in (True, False):
            with (
                clients.serving(dataplane, has_port, grpc_socket_path=path) as server,
                clients.connect(f"unix:{path}") as client,
            ):
                assert values(client) == Y
                if has_port:
                    with clients.connect(server.address) as other:
                        assert values(other) == Y


def test_unix_socket_of_another_server_is_taken_over(dataplane: DataPlane) -> None:
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as stale:
        path = f"{directory}/socket"
        stale.bind(path)
        for _ in range(2):
            with (
                clients.serving(dataplane, False, grpc_socket_path=path),
                clients.serving(dataplane, False, grpc_socket_path=path),
                clients.connect(f"unix:{path}") as client,
            ):
                assert values(client) == Y


def test_channel_arguments_of_the_user_are_applied(dataplane: DataPlane) -> None:
    # The arguments that a test of TensorFlow Serving passes, and one whose effect can be tested.
    arguments = (
        ("grpc.so_reuseaddr", 1),
        ("grpc.max_connection_age_ms", 2000),
        ("grpc.lb_policy_name", "grpclb"),
        ("grpc.max_receive_message_length", 10),
    )
    with (
        clients.serving(dataplane, grpc_channel_arguments=arguments) as server,
        clients.connect(server.address) as client,
        pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"),
    ):
        values(client)


def test_connections_beyond_the_limit_are_closed(dataplane: DataPlane) -> None:
    with (
        clients.serving(dataplane, max_connections=1) as server,
        clients.connect(server.address) as client,
    ):
        assert values(client) == Y
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as second:
            assert second.recv(100) == b""
        assert values(client) == Y


def test_compressed_request_is_decompressed(dataplane: DataPlane) -> None:
    with clients.serving(dataplane) as server, clients.connect(server.address) as client:
        for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            reply = client.prediction.Predict(
                predict_request(x=X), timeout=10, compression=compression
            )
            assert list(reply.outputs["y"].float_val) == Y


def test_request_beyond_the_limit_is_refused_and_the_next_is_answered(
    dataplane: DataPlane,
) -> None:
    with (
        clients.serving(dataplane, max_request_bytes=1000) as server,
        clients.connect(server.address) as client,
    ):
        with pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"):
            client.predict(x=np.zeros(1000, np.float32))
        assert values(client) == Y


def test_small_message_that_describes_a_large_tensor_is_refused(dataplane: DataPlane) -> None:
    request = predict_request()
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_shape.dim.add(size=10_000)
    with (
        clients.serving(dataplane, max_request_bytes=1000) as server,
        clients.connect(server.address) as client,
        pytest.raises(grpc.RpcError) as caught,
    ):
        client.prediction.Predict(request, timeout=10)
    assert clients.status_and_text(caught) == ("INVALID_ARGUMENT", "tensor parsing error: x")


def test_call_without_a_valid_api_key_is_refused(dataplane: DataPlane, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("secret\n")
    request = predict_request(x=X)
    with (
        clients.serving(dataplane, keys=ApiKeys(file)) as server,
        clients.connect(server.address) as client,
    ):
        good = (("authorization", "Bearer secret"),)
        assert client.prediction.Predict(request, timeout=10, metadata=good).outputs
        for bad in ((), (("authorization", "Bearer no"),)):
            with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                client.prediction.Predict(request, timeout=10, metadata=bad)
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            client.status(name="half")


def test_health_checks_can_be_exempt_from_api_keys(dataplane: DataPlane, tmp_path: Path) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    file = tmp_path / "keys"
    file.write_text("secret\n")
    for is_open in (True, False):
        with (
            clients.serving(
                dataplane,
                keys=ApiKeys(file),
                open_health=is_open,
                enable_grpc_healthcheck_service=True,
            ) as server,
            clients.connect(server.address) as client,
        ):
            stub = health_pb2_grpc.HealthStub(client.channel)
            if is_open:
                assert stub.Check(health_pb2.HealthCheckRequest(), timeout=10).status == 1
            else:
                with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                    stub.Check(health_pb2.HealthCheckRequest(), timeout=10)


def test_call_beyond_the_limit_is_refused_and_the_call_in_flight_is_answered(
    dataplane: DataPlane, loader: FakeLoader
) -> None:
    admission = AdmissionController(1)
    model = loader.models[3]
    model.gate.clear()
    with (
        clients.serving(dataplane, admission=admission) as server,
        clients.connect(server.address) as client,
        ThreadPoolExecutor() as pool,
    ):
        first = pool.submit(values, client)
        assert model.has_begun.wait(10)
        with pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"):
            values(client)
        assert client.status(name="half")[0].state == 30
        model.gate.set()
        assert first.result() == Y
        assert admission.wait_until_idle(10)


def test_draining_server_is_unavailable(dataplane: DataPlane) -> None:
    admission = AdmissionController()
    with (
        clients.serving(dataplane, admission=admission) as server,
        clients.connect(server.address) as client,
    ):
        assert values(client) == Y
        admission.drain()
        with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
            values(client)


def test_calls_that_arrive_during_the_stop_are_unavailable(
    dataplane: DataPlane,
) -> None:
    admission, answered = AdmissionController(), threading.Semaphore(0)

    def ask_again_and_again(address: str) -> str:
        with clients.connect(address) as client:
            try:
                while values(client) == Y:
                    answered.release()
            except grpc.RpcError as error:
                return str(error.code().name)
        return "another answer"

    with (
        clients.serving(dataplane, admission=admission) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        client_threads = [pool.submit(ask_again_and_again, server.address) for _ in range(8)]
        for _ in range(100):
            assert answered.acquire(timeout=10)
        admission.drain()
        assert admission.wait_until_idle(10)
        server.stop()
        assert {client_thread.result() for client_thread in client_threads} == {"UNAVAILABLE"}


def test_more_stalled_calls_than_threads_do_not_block_others(dataplane: DataPlane) -> None:
    end = threading.Event()

    def nothing() -> Iterator[bytes]:
        end.wait()
        yield from ()

    with (
        clients.serving(dataplane, grpc_max_threads=2) as server,
        clients.connect(server.address) as stalling,
        clients.connect(server.address) as client,
    ):
        call = stalling.channel.stream_unary(PREDICT)
        stalled = [call.future(nothing(), timeout=60) for _ in range(5)]
        assert values(client) == Y
        end.set()
        for call in stalled:
            call.cancel()


@pytest.mark.parametrize(
    "method",
    [
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/tensorflow.ProfilerService/Monitor",
    ],
)
def test_open_streams_block_neither_rejections_nor_reloads(
    dataplane: DataPlane, method: str
) -> None:
    end, admission = threading.Event(), AdmissionController()

    def nothing() -> Iterator[bytes]:
        end.wait()
        yield from ()

    with (
        clients.serving(
            dataplane, admission=admission, enable_grpc_healthcheck_service=True
        ) as server,
        clients.connect(server.address) as client,
    ):
        opened = [client.channel.stream_stream(method)(nothing()) for _ in range(20)]
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            client.channel.unary_unary(RELOAD)(b"", timeout=10)
        admission.drain()
        with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
            values(client)
        end.set()
        for call in opened:
            call.cancel()


def test_call_that_was_cancelled_in_the_queue_is_not_run(
    dataplane: DataPlane, loader: FakeLoader
) -> None:
    model = loader.models[3]
    model.gate.clear()
    admission = AdmissionController()
    with (
        clients.serving(dataplane, grpc_max_threads=1, admission=admission) as server,
        clients.connect(server.address) as client,
    ):
        first = client.prediction.Predict.future(predict_request(x=X))
        assert model.has_begun.wait(10)
        model.has_begun.clear()
        cancelled = client.prediction.Predict.future(predict_request(x=X), 30)
        eventually(lambda: admission.in_flight == 2)
        assert cancelled.cancel()
        late = client.prediction.Predict.future(predict_request(x=X), 0.2)
        assert late.exception().code() == grpc.StatusCode.DEADLINE_EXCEEDED
        # Neither call counts as in flight any more, although the thread is still busy.
        eventually(lambda: admission.in_flight == 1)
        model.gate.set()
        assert list(first.result().outputs["y"].float_val) == Y
        assert admission.wait_until_idle(10)
        assert not model.has_begun.is_set()


@pytest.mark.parametrize("allow_direct_polling", [True, False])
def test_slow_model_does_not_block_health_and_status(
    dataplane: DataPlane,
    loader: FakeLoader,
    allow_direct_polling: bool,
) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    model = loader.models[3]
    model.gate.clear()
    with (
        clients.serving(
            dataplane,
            grpc_max_threads=2,
            enable_grpc_healthcheck_service=True,
            allow_direct_polling=allow_direct_polling,
        ) as server,
        clients.connect(server.address) as client,
    ):
        # Five calls: more than the server has threads.
        calls = [client.prediction.Predict.future(predict_request(x=X)) for _ in range(5)]
        assert model.has_begun.wait(10)
        stub = health_pb2_grpc.HealthStub(client.channel)
        for _ in range(3):
            assert stub.Check(health_pb2.HealthCheckRequest(), timeout=10).status == 1
            assert client.status(name="half")[0].state == 30
        model.gate.set()
        assert [list(call.result().outputs["y"].float_val) for call in calls] == [Y] * 5


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_ipv4_and_ipv6_are_served_while_the_port_is_reserved(
    dataplane: DataPlane,
) -> None:
    from server.frontends.grpc.server import GrpcServer

    # Reserve the port as the server does before it loads models.
    with ports.bind_port("0.0.0.0", 0, "--port") as reserved:
        port = reserved.getsockname()[1]
        server = GrpcServer(dataplane, "0.0.0.0", port, 10)
        server.start()
    for host in ("127.0.0.1", "[::1]"):
        with clients.connect(f"{host}:{port}") as client:
            assert values(client) == Y
    server.stop()
    server.join()
