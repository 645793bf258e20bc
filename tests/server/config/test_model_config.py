"""A configuration that no server can work with is refused in TensorFlow Serving's words."""

from pathlib import Path

import pytest

from server.config.model_config import ModelConfig, ModelServerConfig
from tpuserve.errors import InvalidConfig


@pytest.mark.parametrize(
    ("models", "text"),
    [
        (
            [ModelConfig("a", "/a"), ModelConfig("a", "/b")],
            "Illegal to list model a multiple times in config list",
        ),
        (
            [ModelConfig("a", "x")],
            "Expected model a to have an absolute path or URI; got base_path()=x",
        ),
        (
            [ModelConfig("a", "")],
            "Expected model a to have an absolute path or URI; got base_path()=",
        ),
        (
            [ModelConfig("a", "/a", platform="caffe")],
            "Model a requests unsupported platform caffe",
        ),
    ],
)
def test_wrong_models_are_told_as_tensorflow_serving_does(
    models: list[ModelConfig], text: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        ModelServerConfig(tuple(models))
    assert str(caught.value) == text


def test_path_with_dots_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"without '\.\.'; got base_path\(\)=/models/\.\./etc"):
        ModelServerConfig((ModelConfig("a", "/models/../etc"),))


def test_uri_of_a_file_is_its_path() -> None:
    config = ModelServerConfig((ModelConfig("a", "file:///models/a"), ModelConfig("b", "/b")))
    assert [model.path for model in config.models] == [Path("/models/a"), Path("/b")]
    assert config.names() == ["a", "b"]
