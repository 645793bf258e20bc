"""A call for a model that is not loaded waits without a thread, for its deadline at most."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
import pytest

from server.dataplane import DataPlane
from tests.server.frontends.grpc import clients
from tests.server.lazy_models import LazyModels, lazy_models
from tpuserve.errors import Code, CodedError

PREDICT = "/tensorflow.serving.PredictionService/Predict"
METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
SECONDS = 30


@contextmanager
def calling(models: LazyModels, **options: Any) -> Iterator[grpc.Channel]:
    """Serve the models with two threads."""
    models.queues.start()
    dataplane = DataPlane(models.manager, residency=models.residency)
    with (
        clients.serving(dataplane, queues=models.queues, grpc_max_threads=2, **options) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        yield channel
    models.queues.close()


@pytest.fixture(params=[True, False], ids=["polling threads", "default threads"])
def blocked(request: pytest.FixtureRequest) -> Iterator[tuple[LazyModels, grpc.Channel]]:
    """Serve a model "a" whose load waits for its gate, and a model "b"."""
    with lazy_models("ab") as models:
        models.gates["a"] = threading.Event()
        with calling(models, allow_direct_polling=request.param) as channel:
            yield models, channel


def begin(channel: grpc.Channel, model: str, timeout: float = SECONDS) -> Any:
    request = clients.predict_request(spec={"name": model}, x=np.array([1], np.float32))
    return channel.unary_unary(PREDICT).future(request.SerializeToString(), timeout=timeout)


def wait_until_waiting(models: LazyModels, count: int) -> None:
    while models.queues.find_use("a").waiting != count:
        threading.Event().wait(0.01)


def test_other_model_is_loaded_and_answers_while_more_calls_than_threads_wait(
    blocked: tuple[LazyModels, grpc.Channel],
) -> None:
    models, channel = blocked
    waiting = [begin(channel, "a") for _ in range(6)]
    wait_until_waiting(models, 6)
    assert begin(channel, "b").result()
    models.gates["a"].set()
    assert all(call.result() for call in waiting)


def test_call_whose_deadline_is_before_the_end_of_the_load_ends_then(
    blocked: tuple[LazyModels, grpc.Channel],
) -> None:
    models, channel = blocked
    with pytest.raises(grpc.RpcError) as caught:
        begin(channel, "a", timeout=0.2).result()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until_waiting(models, 0)
    models.gates["a"].set()
    assert begin(channel, "a").result()
    assert models.loads == ["a"]


def test_call_that_its_client_cancels_leaves_and_the_load_serves_the_next(
    blocked: tuple[LazyModels, grpc.Channel],
) -> None:
    models, channel = blocked
    call = begin(channel, "a")
    wait_until_waiting(models, 1)
    call.cancel()
    wait_until_waiting(models, 0)
    models.gates["a"].set()
    assert begin(channel, "a").result()
    assert models.loads == ["a"]


def test_calls_get_the_error_of_the_load(blocked: tuple[LazyModels, grpc.Channel]) -> None:
    models, channel = blocked
    models.failures["a"] = CodedError("an op is unknown.", Code.UNIMPLEMENTED)
    waiting = [begin(channel, "a") for _ in range(3)]
    wait_until_waiting(models, 3)
    models.gates["a"].set()
    for call in waiting:
        assert call.code() is grpc.StatusCode.UNAVAILABLE
        assert call.details().startswith("model a cannot be loaded: an op is unknown. The server")
    assert models.loads == ["a"]


def test_call_for_metadata_waits_for_the_load_without_a_thread(
    blocked: tuple[LazyModels, grpc.Channel],
) -> None:
    from tensorflow_serving.apis import get_model_metadata_pb2

    models, channel = blocked
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["other"])
    request.model_spec.name = "a"
    ask = channel.unary_unary(METADATA)
    waiting = [ask.future(request.SerializeToString(), timeout=SECONDS) for _ in range(4)]
    wait_until_waiting(models, 4)
    assert begin(channel, "b").result()
    models.gates["a"].set()
    assert {call.details() for call in waiting} == {"Metadata field other is not supported"}
