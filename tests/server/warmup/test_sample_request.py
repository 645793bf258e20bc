"""A sample request is valid: the model answers it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.warmup.sample_request import make_sample_request
from tests.server.frontends.rest.console import exports
from tpuserve.runtime import loader

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("forms") / "1"
    exports.export(directory)
    return directory


@pytest.fixture(scope="module")
def model(directory: Path) -> Iterator[Any]:
    model = loader.load(directory)
    yield model
    model.close()


def test_model_answers_the_sample_of_each_signature(model: Any, directory: Path) -> None:
    assert len(model.signatures) == 7
    for name in sorted(model.signatures):
        request = make_sample_request(model, directory, name)
        inputs = {
            alias: np.zeros(value.shape, np.uint8) if value.array is None else value.array
            for alias, value in request.inputs.items()
        }
        outputs = model.run(name, inputs)
        assert {len(output) for output in outputs.values()} == {1}, name


def test_sample_describes_examples_and_pictures(model: Any, directory: Path) -> None:
    (value,) = make_sample_request(model, directory, "age_next_year").inputs.values()
    features = {
        name: (feature.kind, feature.size, len(feature.values))
        for name, feature in value.features.items()
    }
    assert features.pop("colours")[:2] == ("bytes", None)
    assert features == {"age": ("int64", 1, 1), "weights": ("float", 2, 2)}
    (value,) = make_sample_request(model, directory, "picture_height").inputs.values()
    assert (value.is_picture, value.features) == (True, {})
    (value,) = make_sample_request(model, directory, "photo_size").inputs.values()
    assert (value.shape, value.array) == ((1, 224, 224, 3), None)
