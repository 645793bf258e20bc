"""Classify, Regress and MultiInference wait for a batch without a thread."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
import pytest

from server.app import Server
from server.config.settings import Settings
from server.servables.servable import Array
from tests import processes
from tests.server.dataplane.models import ExamplesModel
from tests.server.fakes import FakeLoader
from tests.server.frontends.grpc import clients

LOOPBACK = processes.LOOPBACK
# The number of rows that starts a batch: more than the number of threads, so that the requests of a
# batch cannot all wait in threads.
ROWS = 200
BATCHING = f"""
max_batch_size {{ value: {ROWS} }} batch_timeout_micros {{ value: 60000000 }}
num_batch_threads {{ value: 1 }}
"""


class MultiModel(ExamplesModel):
    """A model that computes several signatures in one run, as models of TensorFlow do."""

    def __init__(self) -> None:
        super().__init__()
        self.multi_runs = 0

    def run_multi(
        self, output_names: Mapping[str, Sequence[str]], inputs: Mapping[str, Array], **how: Any
    ) -> dict[str, Any]:
        self.multi_runs += 1
        return {name: self.run(name, inputs, names) for name, names in output_names.items()}


@pytest.fixture(scope="module")
def loader() -> FakeLoader:
    loader = FakeLoader()
    loader.model_type = MultiModel
    return loader


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, loader: FakeLoader) -> Iterator[Settings]:
    """The settings of a server with one thread for each protocol."""
    directory = tmp_path_factory.mktemp("examples")
    (directory / "models" / "3").mkdir(parents=True)
    (directory / "batching").write_text(BATCHING)
    rpc, rest = processes.free_ports(2)
    settings = Settings(
        directory / "models",
        "m",
        rpc,
        rest,
        LOOPBACK,
        grpc_max_threads=1,
        rest_api_num_threads=1,
        enable_batching=True,
        batching_parameters_file=str(directory / "batching"),
    )
    server = Server(settings, loader, on_failure=pytest.fail)
    server.start()
    yield settings
    server.stop()


def model_of(loader: FakeLoader) -> MultiModel:
    model = loader.models[3]
    assert isinstance(model, MultiModel)
    return model


@pytest.mark.parametrize(("method", "signature"), [("Classify", ""), ("Regress", "regress")])
def test_calls_over_grpc_share_a_batch(
    settings: Settings, loader: FakeLoader, method: str, signature: str
) -> None:
    from tensorflow_serving.apis import classification_pb2

    runs = model_of(loader).runs
    runs.clear()
    # The same bytes serve as a RegressionRequest, whose fields have the same numbers.
    request = classification_pb2.ClassificationRequest(
        model_spec=clients.model_spec(name="m", signature_name=signature),
        input=clients.example_list([clients.example(x=1.0)]),
    ).SerializeToString()
    with clients.connect(f"{LOOPBACK}:{settings.port}") as client:
        call = client.channel.unary_unary(f"/tensorflow.serving.PredictionService/{method}")
        calls = [call.future(request, timeout=30) for _ in range(ROWS)]
        assert len({future.result() for future in calls}) == 1
    assert len(runs) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("method", "signature"), [("classify", None), ("regress", "regress")])
def test_requests_over_rest_share_a_batch(
    settings: Settings, loader: FakeLoader, method: str, signature: str | None
) -> None:
    runs = model_of(loader).runs
    runs.clear()
    body = {"examples": [{"x": 1.0}], **({"signature_name": signature} if signature else {})}
    url = f"http://{LOOPBACK}:{settings.rest_api_port}/v1/models/m:{method}"

    async def ask() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=ROWS)
        async with httpx.AsyncClient(limits=limits, timeout=30) as client:
            return await asyncio.gather(*(client.post(url, json=body) for _ in range(ROWS)))

    replies = asyncio.run(ask())
    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.text for reply in replies}) == 1
    assert len(runs) == 1


def test_calls_of_multi_inference_share_a_batch(settings: Settings, loader: FakeLoader) -> None:
    from tensorflow_serving.apis import inference_pb2

    model = model_of(loader)
    model.multi_runs = 0
    request = inference_pb2.MultiInferenceRequest(
        input=clients.example_list([clients.example(x=1.0)])
    )
    for signature, method in (("", "classify"), ("regress", "regress")):
        request.tasks.add(
            model_spec=clients.model_spec(name="m", signature_name=signature),
            method_name=f"tensorflow/serving/{method}",
        )
    with clients.connect(f"{LOOPBACK}:{settings.port}") as client:
        call = client.channel.unary_unary("/tensorflow.serving.PredictionService/MultiInference")
        serialized = request.SerializeToString()
        calls = [call.future(serialized, timeout=30) for _ in range(ROWS)]
        assert len({future.result() for future in calls}) == 1
    assert model.multi_runs == 1
