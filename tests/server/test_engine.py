"""An engine applies a configuration as a whole, or not at all."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.config.model_config import ModelConfig, ModelServerConfig, RequestLogging
from server.config.settings import Settings
from server.engine import Engine
from server.metrics import Metrics
from tests.server.fakes import FakeLoader, FakeModel
from tpuserve.errors import InvalidConfig


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    (tmp_path / "half" / "3").mkdir(parents=True)
    engine = Engine(Settings(tmp_path / "half"), FakeLoader(), Metrics())
    # Replace the function that imports TensorFlow to encode the entries of the request log.
    engine._request_log._encode = lambda entry, config, time_seconds: b"record"
    yield engine
    engine.close(10, 10)


def model(directory: Path, logging: RequestLogging | None = None) -> ModelConfig:
    return ModelConfig("half", str(directory / "half"), logging=logging)


def test_reload_by_a_client_keeps_the_request_log(engine: Engine, tmp_path: Path) -> None:
    log = RequestLogging("file", str(tmp_path / "log"), 1.0)
    engine._config_manager.reload(ModelServerConfig((model(tmp_path, log),)))
    assert engine._request_log.should_log("half")
    engine.dataplane.reload(ModelServerConfig((model(tmp_path),)))
    assert engine._request_log.should_log("half")


def test_file_without_a_request_log_ends_it(engine: Engine, tmp_path: Path) -> None:
    log = RequestLogging("file", str(tmp_path / "log"), 1.0)
    engine._config_manager.reload(ModelServerConfig((model(tmp_path, log),)))
    engine._config_manager.reload(ModelServerConfig((model(tmp_path),)))
    assert not engine._request_log.should_log("half")


def test_refused_configuration_leaves_the_runtime_and_the_base_path_of_later_loads(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []

    def load(directory: Path, runtime: str, base_path: Path | None) -> FakeModel:
        loads.append((runtime, base_path))
        return FakeModel()

    monkeypatch.setattr(engine, "_loader", load)
    engine._config_manager.reload(ModelServerConfig((model(tmp_path),)))
    refused = ModelConfig("half", "/elsewhere", logging=RequestLogging("file", ""), engine="xla")
    with pytest.raises(InvalidConfig, match="filename_prefix is ''"):
        engine._config_manager.reload(ModelServerConfig((refused,)))
    engine._find_load("half")(tmp_path / "half")
    assert loads == [("", tmp_path / "half")]
