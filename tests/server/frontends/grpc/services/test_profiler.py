"""The profiler service forwards calls to TensorFlow's server, which the first call starts."""

from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from server.admission.admission import AdmissionController
from server.dataplane import DataPlane
from server.frontends.grpc.services.registry import ProfilerService
from tests.processes import LOOPBACK
from tests.server.frontends.grpc import clients

MONITOR = "/tensorflow.ProfilerService/Monitor"


class FakeProfilerServer:
    """A server that stands in for TensorFlow's profiler server."""

    def __init__(self) -> None:
        self.starts = 0
        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        echo = grpc.unary_unary_rpc_method_handler(lambda message, context: b"echo " + message)
        fail = grpc.unary_unary_rpc_method_handler(
            lambda message, context: context.abort(grpc.StatusCode.NOT_FOUND, "no profile")
        )
        methods = {"Monitor": echo, "Profile": fail}
        service = grpc.method_handlers_generic_handler("tensorflow.ProfilerService", methods)
        self.server.add_generic_rpc_handlers((service,))
        self.port = self.server.add_insecure_port(f"{LOOPBACK}:0")
        self.server.start()

    def start(self) -> str:
        self.starts += 1
        return f"{LOOPBACK}:{self.port}"


@pytest.fixture
def profiler_server() -> Iterator[FakeProfilerServer]:
    profiler_server = FakeProfilerServer()
    yield profiler_server
    profiler_server.server.stop(0).wait()


@pytest.fixture
def channel(
    dataplane: DataPlane, profiler_server: FakeProfilerServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[grpc.Channel]:
    monkeypatch.setattr(dataplane, "start_profiler", profiler_server.start)
    with (
        clients.serving(dataplane, service_types=[ProfilerService]) as server,
        clients.connect(server.address) as client,
    ):
        yield client.channel


def test_bytes_are_forwarded_both_ways(
    channel: grpc.Channel, profiler_server: FakeProfilerServer
) -> None:
    assert profiler_server.starts == 0
    for timeout in (10, None):
        assert channel.unary_unary(MONITOR)(b"\xff", timeout=timeout) == b"echo \xff"
    assert profiler_server.starts > 0


def test_errors_are_forwarded(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/tensorflow.ProfilerService/Profile")(b"", timeout=10)
    assert clients.status_and_text(caught) == ("NOT_FOUND", "no profile")
    with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
        channel.unary_unary("/tensorflow.ProfilerService/Other")(b"", timeout=10)


def test_tensorflows_own_profiler_answers(
    dataplane: DataPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The profiler writes captures to the working directory.
    monkeypatch.chdir(tmp_path)
    # A ProfileRequest for 50 ms. On a CPU there is no Monitor.
    with clients.serving(dataplane) as server, clients.connect(server.address) as client:
        profile = client.channel.unary_unary("/tensorflow.ProfilerService/Profile")
        assert isinstance(profile(b"\x08\x32", timeout=60), bytes)
        with pytest.raises(grpc.RpcError) as caught:
            client.channel.unary_unary(MONITOR)(b"", timeout=60)
    assert clients.status_and_text(caught) == ("UNIMPLEMENTED", "unimplemented.")


def test_profile_of_an_idle_server_has_the_number_of_requests(
    dataplane: DataPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    monkeypatch.chdir(tmp_path)
    with clients.serving(dataplane, admission=AdmissionController()) as server:
        # `trace` raises an error if the profile contains no event.
        tf.profiler.experimental.client.trace(f"grpc://{server.address}", str(tmp_path), 1000)
    (file,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    names = {data.name for plane in space.planes for data in plane.event_metadata.values()}
    assert "serving" in names
    stats = {data.name for plane in space.planes for data in plane.stat_metadata.values()}
    assert "requests_in_flight" in stats
