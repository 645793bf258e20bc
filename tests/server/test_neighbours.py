"""While one model is blocked, the clients of another model still get their answers."""

import json
import select
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from server.app import Server
from server.config.settings import Settings
from tests.processes import LOOPBACK, free_ports
from tests.server.fakes import FakeModel
from tests.server.frontends.grpc import clients

PREDICT = "/tensorflow.serving.PredictionService/Predict"
BODY = b'{"instances": [1.0]}'
CLIENTS = 20


class TwoModels:
    """A server with the models "slow" and "quick", and clients over both protocols."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.models = {"slow": FakeModel(), "quick": FakeModel()}
        configs = ""
        for name in self.models:
            (directory / name / "1").mkdir(parents=True)
            configs += (
                f"config {{ name: '{name}' base_path: '{directory / name}' "
                "model_platform: 'tensorflow' }\n"
            )
        (directory / "models.config").write_text(f"model_config_list {{ {configs} }}")
        self._grpc_port, self._rest_port = free_ports(2)
        settings = Settings(
            model_config_file=str(directory / "models.config"),
            port=self._grpc_port,
            rest_api_port=self._rest_port,
            host=LOOPBACK,
            **options,
        )
        self.server = Server(settings, lambda path: self.models[path.parent.name], print)
        self.server.start()

    @property
    def in_flight(self) -> int:
        return self.server._frontends._admission.in_flight

    def begin_rest(self, model: str) -> socket.socket:
        connection = socket.create_connection((LOOPBACK, self._rest_port), timeout=30)
        head = f"POST /v1/models/{model}:predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
        return connection

    def ask_rest(self, model: str) -> object:
        url = f"http://{LOOPBACK}:{self._rest_port}/v1/models/{model}:predict"
        with urllib.request.urlopen(url, BODY, timeout=30) as response:
            return json.load(response)["predictions"]

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(f"{LOOPBACK}:{self._grpc_port}")


@pytest.fixture(params=[False, True], ids=["unbatched", "batched"])
def two_models(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TwoModels]:
    options: dict[str, Any] = {}
    if request.param:
        (tmp_path / "batching.config").write_text(
            "num_batch_threads { value: 1 } batch_timeout_micros { value: 0 } "
            "max_enqueued_batches { value: 100 }"
        )
        options = {
            "enable_batching": True,
            "batching_parameters_file": str(tmp_path / "batching.config"),
        }
    two_models = TwoModels(tmp_path, **options)
    yield two_models
    two_models.models["slow"].gate.set()
    assert two_models.server.stop()


def test_clients_of_a_blocked_model_keep_nobody_else_from_an_answer(
    two_models: TwoModels,
) -> None:
    slow, pause = two_models.models["slow"], threading.Event()
    x = np.array([1], np.float32)
    requests = {
        name: clients.predict_request(spec={"name": name}, x=x).SerializeToString()
        for name in ("slow", "quick")
    }
    with two_models.channel() as channel, ExitStack() as stack:
        predict = channel.unary_unary(PREDICT)
        slow.gate.clear()
        calls = [predict.future(requests["slow"], timeout=60) for _ in range(CLIENTS)]
        connections = [stack.enter_context(two_models.begin_rest("slow")) for _ in range(CLIENTS)]
        while two_models.in_flight < 2 * CLIENTS:
            pause.wait(0.01)
        for _ in range(10):
            assert two_models.ask_rest("quick") == [2.5]
            assert predict(requests["quick"], timeout=30)
        assert two_models.in_flight == 2 * CLIENTS
        slow.gate.set()
        assert all(call.code() is grpc.StatusCode.OK for call in calls)
        assert all(connection.recv(15) == b"HTTP/1.1 200 OK" for connection in connections)


def test_requests_beyond_the_enqueued_batches_are_refused_and_take_no_thread(
    tmp_path: Path,
) -> None:
    (tmp_path / "batching.config").write_text(
        "max_batch_size { value: 1 } num_batch_threads { value: 1 } "
        "max_enqueued_batches { value: 2 }"
    )
    two_models = TwoModels(
        tmp_path,
        enable_batching=True,
        batching_parameters_file=str(tmp_path / "batching.config"),
        rest_api_num_threads=1,
        grpc_max_threads=1,
    )
    slow = two_models.models["slow"]
    slow.gate.clear()
    with ExitStack() as stack:
        stack.callback(two_models.server.stop)
        stack.callback(slow.gate.set)
        connections = [stack.enter_context(two_models.begin_rest("slow")) for _ in range(CLIENTS)]
        refused: list[socket.socket] = []
        pause = threading.Event()
        while len(refused) < CLIENTS - 3:
            pause.wait(0.01)
            refused = select.select(connections, [], [], 0)[0]
        assert all(connection.recv(12) == b"HTTP/1.1 503" for connection in refused)
        assert two_models.in_flight == 3
        slow.gate.set()
        answered = [connection for connection in connections if connection not in refused]
        assert [connection.recv(12) for connection in answered] == [b"HTTP/1.1 200"] * 3
