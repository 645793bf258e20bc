"""While one version replaces another under load, no request fails."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from server.tensors import serializer
from tests import models, processes
from tests.processes import ServeProcess

pytestmark = pytest.mark.slow

VERSIONS = (2, 3, 4)


def publish(source: Path, base: Path, version: int) -> None:
    """Publish a version atomically, with a rename, as an exporter does."""
    shutil.copytree(source, base / "being-copied")
    (base / "being-copied").rename(base / str(version))


def over_rest(server: ServeProcess, client: httpx.Client) -> Any:
    """Send a request; return the HTTP status and the parsed response."""
    url = f"http://{server.rest}/v1/models/half:predict"
    reply = client.post(url, json={"instances": [[2.0]]})
    return reply.status_code, reply.json()


def over_grpc(channel: grpc.Channel) -> Any:
    """Send a request; return the values of the output."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "half"
    request.inputs["x"].CopyFrom(serializer.array_to_tensor_proto(np.full([1, 1], 2, np.float32)))
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    return list(stub.Predict(request, timeout=60).outputs["y"].float_val)


@contextmanager
def asking(ask: Callable[[], Any], answers: list[Any]) -> Iterator[None]:
    """Call `ask` repeatedly while the `with` body runs; append results and errors to `answers`."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            try:
                answers.append(ask())
            except Exception as error:
                answers.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_no_request_fails_while_versions_are_swapped(tmp_path: Path) -> None:
    source = models.export(models.half_plus_two, tmp_path / "source")
    base = tmp_path / "half"
    publish(source, base, 1)
    rest: list[Any] = []
    rpc: list[Any] = []
    with (
        processes.serving(base) as server,
        httpx.Client(timeout=60) as client,
        grpc.insecure_channel(server.rpc) as channel,
        asking(partial(over_rest, server, client), rest),
        asking(partial(over_grpc, channel), rpc),
    ):
        for version in VERSIONS:
            publish(source, base, version)
            wait_for(server, version)
    assert min(len(rest), len(rpc)) > len(VERSIONS)
    assert [reply for reply in rest if reply != (200, {"predictions": [[3.0]]})] == []
    assert [reply for reply in rpc if reply != [3.0]] == []


def wait_for(server: ServeProcess, version: int) -> None:
    """Wait until a version is the only version that is served."""
    state = None
    expected = {str(version): "AVAILABLE", str(version - 1): "END"}
    looks = threading.Event()
    while state != expected:
        assert not looks.wait(0.05)
        reply = httpx.get(f"http://{server.rest}/v1/models/half", timeout=60).json()
        states = {status["version"]: status["state"] for status in reply["model_version_status"]}
        state = {version: states.get(version) for version in expected}
