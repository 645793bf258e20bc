"""HandleReloadConfigRequest reloads a configuration and reports the outcome."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from server.config.model_config import ModelServerConfig
from server.dataplane import DataPlane
from server.metrics import Metrics
from server.models.manager import Manager
from tests.server.frontends.grpc import clients
from tests.server.frontends.grpc.clients import Client
from tpuserve.errors import ModelsNotAvailable

COUNT = "/tensorflow/serving/request_count"


class ModelConfigManager:
    """Records each configuration, counts a request in the metrics, and fails for a model "bad"."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.configs: list[ModelServerConfig] = []

    def reload(self, config: ModelServerConfig) -> None:
        self.configs.append(config)
        self.metrics.request_done("half", "Predict", "GRPC", "OK", 1)
        if "bad" in config.names():
            raise ModelsNotAvailable("1 model(s) did not become available: {}")


@pytest.fixture
def config_manager() -> ModelConfigManager:
    return ModelConfigManager()


@pytest.fixture
def client(manager: Manager, config_manager: ModelConfigManager) -> Iterator[Client]:
    dataplane = DataPlane(manager, reload=config_manager.reload)
    with (
        clients.serving(dataplane, metrics=config_manager.metrics) as server,
        clients.connect(server.address) as client,
    ):
        yield client


def reload(client: Client, *names: str, metrics: Any = (), base_path: str = "/models") -> Any:
    from tensorflow_serving.apis import model_management_pb2

    request = model_management_pb2.ReloadConfigRequest(metric_names=metrics)
    for name in names:
        models = request.config.model_config_list.config
        models.add(name=name, base_path=base_path, model_platform="tensorflow")
    return client.model.HandleReloadConfigRequest(request, timeout=10)


def reload_counts(config_manager: ModelConfigManager) -> list[str]:
    lines = config_manager.metrics.exposition().decode().splitlines()
    return [line for line in lines if line.startswith("tpuserve_config_reloads_total{")]


def test_reload_puts_the_configuration_in_force(
    client: Client, config_manager: ModelConfigManager
) -> None:
    reply = reload(client, "a", "b")
    assert [config.names() for config in config_manager.configs] == [["a", "b"]]
    assert reply.HasField("status")
    assert (reply.status.error_code, reply.status.error_message) == (0, "")
    assert reload_counts(config_manager) == ['tpuserve_config_reloads_total{code="OK"} 1']


def test_reload_is_refused_where_it_would_change_one_process(
    manager: Manager, config_manager: ModelConfigManager
) -> None:
    dataplane = DataPlane(manager, reload=config_manager.reload)
    with (
        clients.serving(dataplane, processes=2) as server,
        clients.connect(server.address) as client,
        pytest.raises(grpc.RpcError, match="Change --model_config_file") as caught,
    ):
        reload(client, "a")
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert config_manager.configs == []


def test_response_has_the_growth_of_metrics(
    client: Client, config_manager: ModelConfigManager
) -> None:
    config_manager.metrics.request_done("half", "Predict", "GRPC", "OK", 1)
    reply = reload(client, "a", metrics=[COUNT, "/other"])
    increases = [(metric.name, metric.int64_value_increase) for metric in reply.metric]
    assert increases == [(COUNT, 1), ("/other", 0)]


@pytest.mark.parametrize(
    ("names", "base_path", "code", "text"),
    [
        (
            [],
            "/models",
            "INVALID_ARGUMENT",
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
            "ModelConfigList is currently supported",
        ),
        (
            ["a", "a"],
            "/models",
            "INVALID_ARGUMENT",
            "Illegal to list model a multiple times in config list",
        ),
        (
            ["a"],
            "x",
            "INVALID_ARGUMENT",
            "Expected model a to have an absolute path or URI; got base_path()=x",
        ),
        (["bad"], "/models", "UNKNOWN", "1 model(s) did not become available: {}"),
    ],
)
def test_error_has_tensorflow_servings_code_and_text(
    client: Client,
    config_manager: ModelConfigManager,
    names: list[str],
    base_path: str,
    code: str,
    text: str,
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        reload(client, *names, base_path=base_path)
    assert clients.status_and_text(caught) == (code, text)
    assert reload_counts(config_manager) == [f'tpuserve_config_reloads_total{{code="{code}"}} 1']
