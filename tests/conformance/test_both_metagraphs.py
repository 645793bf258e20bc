"""Models x promises: what a TPU metagraph answers is what the CPU metagraph answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

import trainer
from server.app import Server
from server.settings import Settings
from tests import processes
from tests.conformance import programs
from tests.conformance.programs import Program
from tpuserve import loader, metagraph, tags
from tpuserve.devices import Hardware
from tpuserve.loader import LoadedModel

pytestmark = pytest.mark.slow

# Of float32; XLA may sum in another order than TensorFlow's own kernels.
TOLERANCE = 1e-5

DEVICES = {
    tags.SERVE: Hardware(),
    tags.SERVE_TPU: Hardware(tpu_cores=1, hosts=1, is_emulated=True),
}


class Exported:
    """A trained and exported model, with both of its metagraphs loaded."""

    def __init__(self, program: Program, directory: Path) -> None:
        config = trainer.RunConfig(model_dir=str(directory / "model"), tf_random_seed=1)
        estimator = trainer.TPUEstimator(program.model_fn, config=config, use_tpu=False)
        estimator.train(program.input_fn, max_steps=3)
        exported = estimator.export_saved_model(str(directory / "export"), program.receiver_fn)
        self.directory = Path(exported.decode())
        self.inputs = program.inputs
        self.loaded = {
            tag_set: loader.load(self.directory, tag_set, hardware)
            for tag_set, hardware in DEVICES.items()
        }

    def run(self, tag_set: tags.TagSet) -> dict[str, np.ndarray]:
        return self.loaded[tag_set].run("serving_default", self.inputs)


@pytest.fixture(scope="module", params=programs.ALL, ids=lambda program: program.name)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exported]:
    model = Exported(request.param, tmp_path_factory.mktemp(request.param.name))
    yield model
    for each in model.loaded.values():
        each.close()


def assert_same(baseline: dict[str, Any], candidate: dict[str, Any]) -> None:
    assert baseline.keys() == candidate.keys()
    for name, expected in baseline.items():
        np.testing.assert_allclose(candidate[name], expected, TOLERANCE, TOLERANCE, err_msg=name)


def test_the_lowered_tpu_metagraph_answers_as_the_cpu_metagraph(exported: Exported) -> None:
    assert_same(exported.run(tags.SERVE), exported.run(tags.SERVE_TPU))


def test_both_metagraphs_have_the_same_signatures(exported: Exported) -> None:
    described = [each.signatures for each in metagraph.read(exported.directory).metagraphs]
    cpu, tpu = (
        {
            name: [
                {alias: (spec.dtype, spec.shape) for alias, spec in tensors.items()}
                for tensors in (signature.inputs, signature.outputs)
            ]
            for name, signature in signatures.items()
        }
        for signatures in described
    )
    assert cpu == tpu


@pytest.mark.parametrize("tag_set", DEVICES, ids=tags.show)
def test_rest_and_grpc_answer_as_the_model_in_process(
    exported: Exported, tag_set: tags.TagSet
) -> None:
    def load(directory: Path) -> LoadedModel:
        return loader.load(directory, tag_set, DEVICES[tag_set])

    rest, rpc = processes.free_ports(2)
    settings = Settings(exported.directory.parent, "m", rpc, rest, processes.LOOPBACK)
    server = Server(settings, load, on_failure=pytest.fail)
    server.start()
    try:
        expected = exported.run(tag_set)
        assert_same(expected, ask_rest(rest, exported.inputs, list(expected)))
        assert_same(expected, ask_grpc(rpc, exported.inputs))
    finally:
        server.stop()


def ask_rest(port: int, inputs: dict[str, Any], names: list[str]) -> dict[str, Any]:
    body = {"inputs": {name: each.tolist() for name, each in inputs.items()}}
    url = f"http://{processes.LOOPBACK}:{port}/v1/models/m:predict"
    outputs = httpx.post(url, json=body, timeout=60).json()["outputs"]
    return outputs if len(names) > 1 else {names[0]: outputs}


def ask_grpc(port: int, inputs: dict[str, Any]) -> dict[str, Any]:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "m"
    for name, each in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(each))
    with grpc.insecure_channel(f"{processes.LOOPBACK}:{port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        outputs = stub.Predict(request, timeout=60).outputs
    return {name: tf.make_ndarray(each) for name, each in outputs.items()}
