"""What a model's ops answer reaches the client over each API: an error's code, and a row's key."""

from pathlib import Path

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from server.tensors.serializer import array_to_tensor_proto
from tests.processes import ServeProcess
from tpuserve.client import Client
from tpuserve.errors import TpuserveError

ROWS = {"key": np.array([b"7", b"8"], object), "x": np.array([1, 2], np.float32)}


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose table is not initialised, and which returns the keys of its rows."""
    import tensorflow as tf

    v1 = tf.compat.v1
    base: Path = tmp_path_factory.mktemp("keyed")
    with tf.Graph().as_default(), v1.Session() as session:
        key = v1.placeholder(tf.string, [None], "key")
        x = v1.placeholder(tf.float32, [None], "x")
        entries = v1.lookup.KeyValueTensorInitializer(["a"], tf.constant([1], tf.int64))
        ids = v1.lookup.StaticHashTable(entries, -1, name="words").lookup(key)
        build = v1.saved_model.build_signature_def
        info = v1.saved_model.build_tensor_info
        builder = v1.saved_model.Builder(str(base / "1"))
        inputs = {"key": info(key), "x": info(x)}
        signatures = {
            "serving_default": build(inputs, {"key": info(key), "y": info(2 * x)}, "p"),
            "table": build(inputs, {"ids": info(ids)}, "p"),
        }
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    return base


def test_an_output_that_is_an_input_comes_back(each_client: Client) -> None:
    outputs = each_client.predict("half", ROWS)
    assert outputs["key"].tolist() == [b"7", b"8"]
    assert outputs["y"].tolist() == [2, 4]


def test_an_error_names_the_op_that_failed(
    each_client: Client, request: pytest.FixtureRequest
) -> None:
    text = "Table not initialized .*node words_Lookup"
    with pytest.raises(TpuserveError, match=text) as error:
        each_client.predict("half", ROWS, signature="table")
    # HTTP has the same status for both codes.
    is_http = "http" in request.node.callspec.id
    code = "INVALID_ARGUMENT" if is_http else "FAILED_PRECONDITION"
    assert error.value.code.name == code


def test_the_status_of_an_error_is_that_of_the_op(server_process: ServeProcess) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "half", "table"
    for name, array in ROWS.items():
        request.inputs[name].CopyFrom(array_to_tensor_proto(array))
    with (
        grpc.insecure_channel(server_process.rpc) as channel,
        pytest.raises(grpc.RpcError) as error,
    ):
        prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=60)
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
