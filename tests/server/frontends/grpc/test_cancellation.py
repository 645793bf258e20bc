"""A model stops when the client no longer waits for the call, even if it would run forever."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from server.admission.admission import AdmissionController
from server.dataplane import DataPlane
from server.models.manager import Manager
from tests.server.aspired_versions import aspire
from tests.server.frontends.grpc import clients

X = np.array([0], np.float32)
PREDICT = "/tensorflow.serving.PredictionService/Predict"


@pytest.fixture(scope="module")
def dataplane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataPlane]:
    from tests import looping_model
    from tpuserve.runtime import loader

    directory = tmp_path_factory.mktemp("model") / "1"
    looping_model.export(directory, has_functional_loops=True)
    manager = Manager(loader.load)
    aspire(manager, "half", {1: directory})
    yield DataPlane(manager)
    manager.close(10)


def endless() -> bytes:
    request = clients.predict_request(x=X, n=np.float32(1e30))
    return bytes(request.SerializeToString())


def num_steps(client: clients.Client) -> int:
    spec = {"name": "half", "signature_name": "steps"}
    return int(client.predict(spec=spec, x=X).outputs["steps"].int64_val[0])


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["cancel", "close", "deadline", "default"])
@pytest.mark.parametrize("allow_direct_polling", [True, False])
def test_endless_run_stops_with_its_call(
    dataplane: DataPlane, end: str, allow_direct_polling: bool
) -> None:
    admission = AdmissionController()
    options: dict[str, Any] = {"default_request_timeout_ms": 1000} if end == "default" else {}
    with (
        clients.serving(
            dataplane, admission=admission, allow_direct_polling=allow_direct_polling, **options
        ) as server,
        clients.connect(server.address) as client,
    ):
        before = num_steps(client)
        channel = grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)])
        timeout = 1 if end == "deadline" else None
        call = channel.unary_unary(PREDICT).future(endless(), timeout)
        wait_until(lambda: num_steps(client) > before)
        if end == "cancel":
            call.cancel()
        elif end == "close":
            channel.close()
        else:
            assert call.exception().code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert admission.wait_until_idle(30)
        steps = num_steps(client)
        assert [num_steps(client) for _ in range(100)] == [steps] * 100
        channel.close()


def test_deadline_of_the_client_replaces_the_default(dataplane: DataPlane) -> None:
    with (
        clients.serving(dataplane, default_request_timeout_ms=1) as server,
        clients.connect(server.address) as client,
    ):
        request = clients.predict_request(x=X, n=np.float32(50_000))
        assert client.prediction.Predict(request, 30).outputs["y"].float_val[0] == 50_000
        with pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
            client.prediction.Predict(request)
