"""The arguments PATH and NAME=PATH name models."""

from pathlib import Path

import pytest

from server.config.model_config import ModelConfig
from server.config.model_paths import default_name, parse_model_paths
from tpuserve.errors import InvalidSetting


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/models/half", "half"),
        ("/models/half/", "half"),
        ("/models/half/1795278862", "half"),
        ("/models/half/1/", "half"),
        ("/models/digits.keras", "digits"),
        ("/models/half/3.keras", "half"),
        ("/models/half v2", "half_v2"),
        ("/models/été:1", "t_1"),
        ("gs://bucket/models/half/", "half"),
        ("gs://bucket", "bucket"),
        ("hf://user/repository@v1/digits.keras", "digits"),
        ("https://host:8080/models/half/1?key=a/b", "half"),
        ("file:///models/half", "half"),
        ("/", ""),
        ("/1", ""),
    ],
)
def test_path_gives_the_name(path: str, name: str) -> None:
    assert default_name(path) == name


def test_names_and_relative_paths_are_read() -> None:
    here = Path.cwd()
    assert parse_model_paths(["half", "b=../half", "c=s3://bucket/a=b", "./d=1/e"]) == (
        ModelConfig("half", f"{here}/half"),
        ModelConfig("b", f"{here.parent}/half"),
        ModelConfig("c", "s3://bucket/a=b"),
        ModelConfig("e", f"{here}/d=1/e"),
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["/a/half", "/b/half"],
            "/a/half and /b/half are both named half. Give one of them another name: NAME=/b/half",
        ),
        (["/"], "/ gives the model no name. Give one: NAME=/"),
        (
            ["half="],
            "the argument 'half=' names no path. Give the path of a model, such as /models/half, "
            "or NAME=/models/half.",
        ),
    ],
)
def test_wrong_arguments_are_told(arguments: list[str], message: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_model_paths(arguments)
    assert str(caught.value) == message
