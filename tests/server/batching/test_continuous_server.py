"""A server batches the requests that wait, unless the rows of a batch depend on each other."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from server.app import Server
from server.config.settings import Settings
from server.servables.servable import Array
from tests import models
from tests.processes import LOOPBACK, free_ports
from tpuserve.proto.open_inference import message_type
from tpuserve.runtime import loader


class GatedModel:
    """A real model whose runs wait until a gate is open; the gate is open at first."""

    def __init__(self, directory: Path) -> None:
        self._model = loader.load(directory)
        self.gate, self.has_begun = threading.Event(), threading.Event()
        self.gate.set()
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def run(self, name: str, inputs: Mapping[str, Array], *args: Any, **how: Any) -> Any:
        self.sizes.append(len(inputs["x"]))
        self.has_begun.set()
        assert self.gate.wait(30)
        return self._model.run(name, inputs, *args, **how)

    def close_gate(self) -> None:
        self.has_begun.clear()
        self.sizes.clear()
        self.gate.clear()


@contextmanager
def serving(base_path: Path, **settings: Any) -> Iterator[tuple[Server, GatedModel, str, str]]:
    """Yield a server with batching, its model, its REST address and its gRPC address."""
    rpc, rest = free_ports(2)
    gated: list[GatedModel] = []

    def load(directory: Path) -> Any:
        gated.append(GatedModel(directory))
        return gated[0]

    server = Server(
        Settings(base_path, "half", rpc, rest, LOOPBACK, enable_batching=True, **settings),
        load,
        on_failure=pytest.fail,
    )
    server.start()
    try:
        yield server, gated[0], f"http://{LOOPBACK}:{rest}/v1/models/half", f"{LOOPBACK}:{rpc}"
    finally:
        gated[0].gate.set()
        server.stop()


def post(url: str, x: list[list[float]]) -> Any:
    response = httpx.post(f"{url}:predict", json={"instances": x}, timeout=60)
    return response.json()["predictions"]


def predict(address: str, x: list[list[float]], timeout_seconds: float | None = 60) -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "half"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.array(x, np.float32)))
    with grpc.insecure_channel(address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        return tf.make_ndarray(stub.Predict(request, timeout_seconds).outputs["y"]).tolist()


def waiting(server: Server) -> int:
    servable = server._engine.dataplane._manager._servables["half"][0]
    return int(servable.runner._scheduler.waiting)  # type: ignore[attr-defined]


def hold_and_send(server: Server, model: GatedModel, *requests: Callable[[], Any]) -> list[Any]:
    """Send one request, then all others while the first runs; return all answers.

    The first request must come over gRPC, because the event loop of REST would run a quick model
    itself and block.
    """
    model.close_gate()
    with ThreadPoolExecutor(len(requests)) as pool:
        futures = [pool.submit(requests[0])]
        assert model.has_begun.wait(30)
        futures += [pool.submit(request) for request in requests[1:]]
        while waiting(server) < len(requests) - 1:
            assert not any(future.done() for future in futures)
        model.gate.set()
        return [future.result(30) for future in futures]


def test_requests_that_wait_when_a_run_ends_run_together(tmp_path: Path) -> None:
    base_path = models.export(models.half_plus_two, tmp_path).parent
    with serving(base_path) as (server, model, url, address):
        # More REST requests than there are threads, so that they wait in the event loop.
        for number in range(10):
            assert post(url, [[number]]) == [[number / 2 + 2]]
        answers = hold_and_send(
            *(server, model),
            *(lambda: predict(address, [[1.0]]), lambda: predict(address, [[2.0], [5.0]])),
            *(lambda: post(url, [[3.0]]), lambda: post(url, [[4.0], [6.0]])),
        )
        assert answers == [[[2.5]], [[3.0], [4.5]], [[3.5]], [[4.0], [5.0]]]
        assert model.sizes == [1, 5]
        statistics = httpx.get(f"{url}/statistics").json()["batching"]
        assert statistics["policy"] == "continuous"
        assert statistics["batch_sizes"] == {"1": 11, "5-8": 1}
        assert statistics["unbatched_signatures"] == {}
        version = httpx.get(f"{url}/statistics").json()["model_spec"]["version"]
        assert httpx.get(f"{url}/versions/{version}/statistics").status_code == 200
        assert httpx.get(f"{url}/versions/1/statistics").status_code == 404


def test_a_client_that_leaves_takes_its_request_out_of_the_queue(tmp_path: Path) -> None:
    base_path = models.export(models.half_plus_two, tmp_path).parent
    with serving(base_path) as (server, model, url, address):
        model.close_gate()
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "half"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto([[3.0]]))
        with ThreadPoolExecutor() as pool, grpc.insecure_channel(address) as channel:
            first = pool.submit(predict, address, [[1.0]])
            assert model.has_begun.wait(30)
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            call = stub.Predict.future(request)
            while not waiting(server):
                assert not call.done()
            call.cancel()
            while waiting(server):
                assert not first.done()
            model.gate.set()
            assert first.result(30) == [[2.5]]
        assert model.sizes == [1]


def test_a_call_without_a_deadline_waits_for_its_batch_no_longer_than_the_default_limit(
    tmp_path: Path,
) -> None:
    base_path = models.export(models.half_plus_two, tmp_path).parent
    with serving(base_path, default_request_timeout_ms=100) as (server, model, _, address):
        model.close_gate()
        with ThreadPoolExecutor() as pool:
            first = pool.submit(predict, address, [[1.0]])
            assert model.has_begun.wait(30)
            with pytest.raises(grpc.RpcError, match="the time limit of the request has passed"):
                predict(address, [[3.0]], timeout_seconds=None)
            assert waiting(server) == 0
            model.gate.set()
            assert first.result(30) == [[2.5]]


@pytest.mark.parametrize("timeout_us", [0, 200_000])
def test_a_request_that_a_thread_has_parsed_waits_for_its_batch_no_longer_than_its_limit(
    tmp_path: Path, timeout_us: int
) -> None:
    base_path = models.export(models.half_plus_two, tmp_path).parent
    limit_ms = 60_000 if timeout_us else 200
    with serving(base_path, rest_api_timeout_in_ms=limit_ms) as (server, model, url, address):
        model.close_gate()
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [3]}
        request = {"inputs": [tensor], "parameters": {"timeout": timeout_us}}
        with ThreadPoolExecutor() as pool:
            first = pool.submit(predict, address, [[1.0]])
            assert model.has_begun.wait(30)
            answer = httpx.post(
                f"{url.replace('/v1/', '/v2/')}/infer",
                content=gzip.compress(json.dumps(request).encode()),
                headers={"Content-Encoding": "gzip"},
                timeout=20,
            )
            assert answer.status_code == 504
            assert "the time limit of the request has passed" in answer.text
            assert waiting(server) == 0
            model.gate.set()
            assert first.result(30) == [[2.5]]


@pytest.mark.parametrize("protocol", ["gRPC", "REST"])
def test_the_parameter_timeout_limits_the_wait_for_a_batch(tmp_path: Path, protocol: str) -> None:
    base_path = models.export(models.half_plus_two, tmp_path).parent
    with serving(base_path) as (server, model, url, address):
        model.close_gate()
        with ThreadPoolExecutor() as pool:
            first = pool.submit(predict, address, [[1.0]])
            assert model.has_begun.wait(30)
            answer = infer_over_grpc if protocol == "gRPC" else infer_over_rest
            code, text = answer(url if protocol == "REST" else address, timeout_us=100_000)
            assert code in {grpc.StatusCode.DEADLINE_EXCEEDED, 504}
            assert "the time limit of the request has passed" in text
            assert waiting(server) == 0
            model.gate.set()
            assert first.result(30) == [[2.5]]


def infer_over_grpc(address: str, timeout_us: int) -> tuple[grpc.StatusCode, str]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "contents": {"fp32_contents": [3]}}
    request = message_type("ModelInferRequest")(
        model_name="half", inputs=[tensor], parameters={"timeout": {"int64_param": timeout_us}}
    )
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer").future(
            request.SerializeToString(), timeout=60
        )
        return call.code(), call.details()


def infer_over_rest(url: str, timeout_us: int) -> tuple[int, str]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [3]}
    request = {"inputs": [tensor], "parameters": {"timeout": timeout_us}}
    path = f"{url.replace('/v1/', '/v2/')}/infer"
    response = httpx.post(path, json=request, timeout=60)
    return response.status_code, response.text


def test_rows_that_depend_on_each_other_are_served_unbatched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base_path = models.export(lambda x: {"y": tf.nn.softmax(x, axis=0)}, tmp_path).parent
    with serving(base_path) as (_, model, url, address):
        assert post(url, [[1.0], [1.0]]) == [[0.5], [0.5]]
        (line,) = [message for message in caplog.messages if "without batching" in message]
        assert "signature serving_default is served without batching: its rows depend" in line
        model.close_gate()
        with ThreadPoolExecutor() as pool:
            futures = [pool.submit(predict, address, [[x]]) for x in (1.0, 2.0)]
            while len(model.sizes) < 2:
                assert not any(future.done() for future in futures)
            model.gate.set()
            # In one batch, the outputs would be 0.27 and 0.73.
            assert [future.result(30) for future in futures] == [[[1.0]], [[1.0]]]
        statistics = httpx.get(f"{url}/statistics").json()["batching"]
        assert statistics["alone"]["signature_not_batchable"] == 3
        assert list(statistics["unbatched_signatures"]) == ["serving_default"]
