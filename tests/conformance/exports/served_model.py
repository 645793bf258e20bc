"""Sends requests to a model in process, over REST and over gRPC, and compares the answers."""

import base64
from collections.abc import Callable, Iterator, Mapping
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
from tests import processes
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.runtime import loader
from tpuserve.runtime.loaded_model import LoadedModel

# The absolute and relative tolerance for float32. XLA may sum in another order than TensorFlow's
# own kernels.
TOLERANCE = 1e-5

HARDWARE = {
    tags.SERVE: TpuSystem(),
    tags.SERVE_TPU: TpuSystem(tpu_cores=1, hosts=1, is_emulated=True),
}


def load_metagraph(directory: Path, tag_set: tags.TagSet) -> LoadedModel:
    """Load a metagraph. A TPU metagraph is lowered to the CPU and compiled by XLA."""
    return loader.load(directory, tag_set, HARDWARE[tag_set])


def largest_difference(
    expected: Mapping[str, Any], actual: Mapping[str, Any], tolerance: float = TOLERANCE
) -> float:
    """Check that two answers are the same; return their largest absolute difference.

    Args:
      expected: output alias → array.
      actual: output alias → array or nested lists.
      tolerance: the absolute and relative tolerance for floats; other values have to be equal.
    """
    assert expected.keys() == actual.keys()
    return max(
        _difference(name, array, actual[name], tolerance) for name, array in expected.items()
    )


def _difference(name: str, expected: Any, actual: Any, tolerance: float) -> float:
    if expected.dtype == object:
        assert _texts(expected) == _texts(actual), name
        return 0.0
    if not np.issubdtype(expected.dtype, np.floating):
        np.testing.assert_array_equal(actual, expected, err_msg=name)
        return 0.0
    # JSON does not distinguish float32 from float64, so convert to the expected dtype.
    actual = np.asarray(actual, expected.dtype)
    np.testing.assert_allclose(actual, expected, tolerance, tolerance, err_msg=name)
    return float(np.abs(actual - expected).max(initial=0.0))


def _texts(array: Any) -> Any:
    return np.vectorize(tf.compat.as_str)(array).tolist()


class ServedModel:
    """One metagraph of a model that a server has loaded.

    Attributes:
      model: the model that the server has loaded.
    """

    def __init__(self, model: LoadedModel, rest: int, rpc: int, name: str = "m") -> None:
        self.model = model
        self._name = name
        self._url = f"http://{processes.LOOPBACK}:{rest}/v1/models/{name}"
        self._rpc = f"{processes.LOOPBACK}:{rpc}"

    def ask_rest(self, signature: str, inputs: Mapping[str, Any], names: list[str]) -> Any:
        """Send a REST request in columnar format; return the outputs by name.

        Bytes that are valid UTF-8 are sent as text, other bytes in base64.
        """
        columns = {name: _json(array.tolist()) for name, array in inputs.items()}
        body = {"signature_name": signature, "inputs": columns}
        outputs = self.post("predict", body)["outputs"]
        return outputs if len(names) > 1 else {names[0]: outputs}

    def post(self, method: str, body: Mapping[str, Any]) -> Any:
        """Send a REST request to predict, classify or regress; return the JSON of the answer."""
        response = httpx.post(f"{self._url}:{method}", json=body, timeout=60)
        assert response.status_code == 200, response.text
        return response.json()

    def ask_grpc(self, signature: str, inputs: Mapping[str, Any]) -> Any:
        """Send a PredictRequest; return output alias → array."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self._name
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(array))
        with grpc.insecure_channel(self._rpc) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            outputs = stub.Predict(request, timeout=60).outputs
        return {name: tf.make_ndarray(tensor) for name, tensor in outputs.items()}


@contextmanager
def serving(
    directory: Path,
    tag_set: tags.TagSet,
    load: Callable[[Path, tags.TagSet], LoadedModel] = load_metagraph,
) -> Iterator[ServedModel]:
    """Serve a metagraph, which `load` returns, over REST and gRPC inside a with block."""
    rest, rpc = processes.free_ports(2)
    settings = Settings(directory.parent, "m", rpc, rest, processes.LOOPBACK)
    with _running(settings, tag_set, load) as loaded:
        yield ServedModel(loaded[directory.parent], rest, rpc)


@contextmanager
def serving_all(
    base_paths: Mapping[str, Path], config: Path, tag_set: tags.TagSet
) -> Iterator[dict[str, ServedModel]]:
    """Serve a metagraph of several models over REST and gRPC, in one server, inside a with block.

    Args:
      base_paths: name of a model → the directory of its versions.
      config: the model config file to write.
      tag_set: the tags of the metagraphs.
    """
    rest, rpc = processes.free_ports(2)
    models = [
        f'config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }}'
        for name, path in base_paths.items()
    ]
    config.write_text(f"model_config_list {{ {' '.join(models)} }}")
    settings = Settings(
        port=rpc, rest_api_port=rest, host=processes.LOOPBACK, model_config_file=str(config)
    )
    with _running(settings, tag_set) as loaded:
        yield {
            name: ServedModel(loaded[path], rest, rpc, name) for name, path in base_paths.items()
        }


@contextmanager
def _running(
    settings: Settings,
    tag_set: tags.TagSet,
    load: Callable[[Path, tags.TagSet], LoadedModel] = load_metagraph,
) -> Iterator[dict[Path, LoadedModel]]:
    """Run a server inside a with block; yield base path → the version that it has loaded."""
    loaded: dict[Path, LoadedModel] = {}

    def load_once(version: Path) -> LoadedModel:
        assert version.parent not in loaded
        loaded[version.parent] = load(version, tag_set)
        return loaded[version.parent]

    server = Server(settings, load_once, on_failure=pytest.fail)
    server.start()
    try:
        yield loaded
    finally:
        server.stop()


def _json(value: Any) -> Any:
    if isinstance(value, list):
        return [_json(element) for element in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}
