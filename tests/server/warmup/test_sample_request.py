"""A sample request is valid: the model answers it."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from server.config.settings import Settings
from server.dataplane.results import ExampleFeature, SampleInput
from server.runner_factory import make_sample
from server.warmup.sample_request import make_sample_request
from tests import models
from tests.server.frontends.rest.console import exports
from tests.server.warmup.test_sample_rows import write_warm_up
from tpuserve.runtime import loader


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


def test_warm_up_requests_are_shown_to_nobody_without_the_flag(tmp_path: Path) -> None:
    directory = models.export(models.half_plus_two, tmp_path)
    write_warm_up(directory, [[123.0], [4.0]])
    settings = Settings(directory.parent)
    with closing(loader.load(directory)) as model:
        values = [
            make_sample(replace(settings, show_warm_up_requests=is_shown))(
                model, directory, "serving_default"
            ).inputs["x"]
            for is_shown in (False, True)
        ]
    assert [value.shape for value in values] == [(1, 1), (1, 1)]
    assert values[0].array != [[123.0]]
    assert values[1].array == [[123.0]]


def test_sample_describes_examples_and_pictures(model: Any, directory: Path) -> None:
    (value,) = make_sample_request(model, directory, "age_next_year").inputs.values()
    features = {
        name: (feature.kind, feature.size, len(feature.values or ()))
        for name, feature in value.features.items()
    }
    assert features.pop("colours")[:2] == ("bytes", None)
    assert features == {"age": ("int64", 1, 1), "weights": ("float", 2, 2)}
    (value,) = make_sample_request(model, directory, "picture_height").inputs.values()
    assert (value.is_picture, value.features) == (True, {})
    (value,) = make_sample_request(model, directory, "photo_size").inputs.values()
    assert (value.shape, value.array) == ((1, 224, 224, 3), None)


def test_sample_names_features_of_many_values_without_the_values(tmp_path: Path) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def total(examples: Any) -> Any:
        feature = tf.io.FixedLenFeature([5000], tf.float32)
        return {"total": tf.reduce_sum(tf.io.parse_example(examples, {"f": feature})["f"], 1)}

    directory = tmp_path / "1"
    tf.saved_model.save(tf.Module(), str(directory), total.get_concrete_function())
    with closing(loader.load(directory)) as model:
        sample = make_sample_request(model, directory, "serving_default")
    assert sample.inputs == {
        "examples": SampleInput((1,), None, {"f": ExampleFeature("float", 5000)})
    }
