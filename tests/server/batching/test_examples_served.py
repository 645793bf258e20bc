"""Classify and Regress wait for a batch without a thread, over both protocols."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from server.app import Server
from server.config.settings import Settings
from tests import processes
from tests.server.dataplane.models import ExamplesModel
from tests.server.fakes import FakeLoader
from tests.server.frontends.grpc import clients

pytestmark = pytest.mark.slow

LOOPBACK = processes.LOOPBACK
# A batch runs only once it has so many rows, which is more than there are threads that may wait.
ROWS = 200
BATCHING = f"""
max_batch_size {{ value: {ROWS} }} batch_timeout_micros {{ value: 60000000 }}
num_batch_threads {{ value: 1 }}
"""


@pytest.fixture(scope="module")
def loader() -> FakeLoader:
    loader = FakeLoader()
    loader.model_type = ExamplesModel
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


def model_of(loader: FakeLoader) -> ExamplesModel:
    model = loader.models[3]
    assert isinstance(model, ExamplesModel)
    return model


@pytest.mark.parametrize(("method", "signature"), [("Classify", ""), ("Regress", "regress")])
def test_calls_over_grpc_share_a_batch(
    settings: Settings, loader: FakeLoader, method: str, signature: str
) -> None:
    from tensorflow_serving.apis import classification_pb2

    runs = model_of(loader).runs
    runs.clear()
    # The fields of a RegressionRequest have the same numbers.
    request = classification_pb2.ClassificationRequest(
        model_spec=clients.model_spec(name="m", signature_name=signature),
        input=clients.example_list([clients.example(x=1.0)]),
    ).SerializeToString()
    with clients.connect(f"{LOOPBACK}:{settings.port}") as client:
        call = client.channel.unary_unary(f"/tensorflow.serving.PredictionService/{method}")
        calls = [call.future(request, timeout=30) for _ in range(ROWS)]
        assert len({each.result() for each in calls}) == 1
    assert len(runs) == 1


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
