"""Triton's extensions of the Open Inference Protocol over REST."""

from pathlib import Path
from typing import Any

import pytest

from server.config.model_config import ModelConfig, ModelServerConfig
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.models.config_manager import ModelConfigManager
from server.models.file_system_source import FileSystemSource
from server.models.manager import Manager
from tests.server.fakes import FakeLoader, FakeModel
from tests.server.frontends.rest.v2.test_infer import Client, tensor
from tpuserve.saved_model.signature import Signature, TensorSpec


class MatrixModel(FakeModel):
    """Takes rows of three numbers."""

    signatures = {
        "serving_default": Signature(
            {"x": TensorSpec("x:0", "float32", (None, 3))},
            {"y": TensorSpec("y:0", "float32", (None, 3))},
        )
    }


@pytest.fixture
def client(dataplane: DataPlane) -> Client:
    return Client(build_rest_app(dataplane))


def test_config_has_the_types_and_dimensions(client: Client) -> None:
    assert client.request("GET", "/v2/models/half/config").json() == {
        "name": "half",
        "platform": "tensorflow_savedmodel",
        "backend": "tensorflow",
        "max_batch_size": 0,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}],
    }


def test_config_of_a_model_of_rows_leaves_the_batch_out(
    loader: FakeLoader, request: pytest.FixtureRequest
) -> None:
    loader.model_type = MatrixModel
    client = Client(build_rest_app(request.getfixturevalue("dataplane")))
    config = client.request("GET", "/v2/models/half/config").json()
    assert config["max_batch_size"] == 2**31 - 1
    assert config["input"][0]["dims"] == [3]


def test_statistics_count_runs_and_rows(client: Client) -> None:
    for signature in ("serving_default", "failing"):
        parameters = {"signature_name": signature}
        x = tensor("x", "FP32", [3], data=[1, 2, 5])
        client.infer({"inputs": [x], "parameters": parameters})
    for path in ("/v2/models/half/stats", "/v2/models/half/versions/3/stats", "/v2/models/stats"):
        (statistics,) = client.request("GET", path).json()["model_stats"]
        assert (statistics["name"], statistics["version"]) == ("half", "3")
        assert (statistics["inference_count"], statistics["execution_count"]) == (3, 1)
        counts = statistics["inference_stats"]
        assert (counts["success"]["count"], counts["fail"]["count"]) == (1, 1)
        stages = [counts[name]["ns"] for name in ("compute_input", "compute_infer")]
        stages.append(counts["compute_output"]["ns"])
        assert min(stages) > 0
        assert counts["success"]["ns"] == sum(stages)
        durations = {
            name: {"count": 1, "ns": counts[name]["ns"]}
            for name in ("compute_input", "compute_infer", "compute_output")
        }
        assert statistics["batch_stats"] == [{"batch_size": 3, **durations}]
    assert client.request("GET", "/v2/models/other/stats").status_code == 404
    assert client.request("GET", "/v2/models/half/versions/9/stats").status_code == 404


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready": true}'])
def test_index_lists_the_versions(client: Client, body: bytes) -> None:
    response = client.request("POST", "/v2/repository/index", body)
    assert response.json() == [{"name": "half", "version": "3", "state": "READY"}]


@pytest.mark.parametrize("body", [b"[]", b'{"ready": 1}', b"{"])
def test_bad_request_for_the_index_is_refused(client: Client, body: bytes) -> None:
    response = client.request("POST", "/v2/repository/index", body)
    assert (response.status_code, response.json().keys()) == (400, {"error"})


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_models_are_not_controlled_without_the_flag(client: Client, verb: str) -> None:
    response = client.request("POST", f"/v2/repository/models/half/{verb}")
    assert response.status_code == 403
    assert "--enable_model_control" in response.json()["error"]


@pytest.fixture
def controlled_client(tmp_path: Path) -> Client:
    """A server that loads and unloads its model on request."""
    (tmp_path / "half" / "3").mkdir(parents=True)
    manager = Manager(FakeLoader())
    configs = ModelConfigManager(manager, FileSystemSource(manager))
    configs.start(ModelServerConfig((ModelConfig("half", str(tmp_path / "half")),)))
    dataplane = DataPlane(
        manager,
        configured=lambda: configs.config.names(),
        load_model=configs.load_model,
        unload_model=configs.unload_model,
    )
    settings = Settings(tmp_path, enable_model_control=True)
    return Client(build_rest_app(dataplane, settings))


def control(client: Client, model: str, verb: str) -> tuple[int, Any]:
    response = client.request("POST", f"/v2/repository/models/{model}/{verb}", b"{}")
    return response.status_code, response.json()


def test_control_is_described_where_it_is_allowed(
    client: Client, controlled_client: Client
) -> None:
    expected = {f"/v2/repository/models/{{model}}/{verb}" for verb in ("load", "unload")}
    paths = client.request("GET", "/openapi.json").json()["paths"]
    assert expected.isdisjoint(paths)
    paths = controlled_client.request("GET", "/openapi.json").json()["paths"]
    assert expected <= paths.keys()


def test_unloaded_model_is_not_served_until_it_is_loaded_again(controlled_client: Client) -> None:
    x = {"inputs": [tensor("x", "FP32", [1], data=[1])]}
    assert controlled_client.infer(x).status_code == 200
    for _ in range(2):
        assert control(controlled_client, "half", "unload") == (200, {})
        assert controlled_client.infer(x).status_code == 404
    for _ in range(2):
        assert control(controlled_client, "half", "load") == (200, {})
        assert controlled_client.infer(x).status_code == 200
    status, body = control(controlled_client, "other", "load")
    assert status == 404
    assert "which has: half" in body["error"]
    assert control(controlled_client, "other", "unload")[0] == 404
