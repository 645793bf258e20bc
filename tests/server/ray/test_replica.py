"""A replica answers requests without Ray, within the memory of its container."""

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from server.process import memory_limit
from server.ray.replica import Replica
from tests import models
from tpuserve.errors import RequestTooLarge

USABLE_BYTES = 1 << 20


class GrpcContext:
    """Keeps the status that a replica gives to a call."""

    code: grpc.StatusCode | None = None

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        """Ignore the text of the error."""


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """A replica in a container that may use `USABLE_BYTES`; its base path is a URI."""
    base = tmp_path_factory.mktemp("models") / "half"
    models.export(models.half_plus_two, base)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_limit, "usable_memory_bytes", lambda: USABLE_BYTES)
        replica = Replica({"model_base_path": base.as_uri(), "saved_model_tags": "serve"}, 2)
    yield replica
    replica.__del__()


def request(rows: int) -> Any:
    message = predict_pb2.PredictRequest()
    message.model_spec.name = "default"
    message.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones([rows, 1], np.float32)))
    return message


def test_a_replica_answers(replica: Replica) -> None:
    answer = asyncio.run(replica.Predict(request(2), GrpcContext()))
    response = predict_pb2.PredictResponse.FromString(answer.SerializeToString())
    assert tf.make_ndarray(response.outputs["y"]).tolist() == [[2.5], [2.5]]


def test_a_request_that_needs_half_of_the_containers_memory_is_refused(replica: Replica) -> None:
    context = GrpcContext()
    with pytest.raises(RequestTooLarge, match=f"{USABLE_BYTES // 2} bytes"):
        asyncio.run(replica.Predict(request(USABLE_BYTES // 8 + 1), context))
    assert context.code is grpc.StatusCode.RESOURCE_EXHAUSTED
