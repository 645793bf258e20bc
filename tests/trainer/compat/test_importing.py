import pytest

from trainer.compat.importing import Finder


@pytest.fixture
def finder() -> Finder:
    return Finder(lambda: None)


@pytest.mark.parametrize("name", ["numpy", "tensorflow_hub", "tensorflow.python.ops", "trainer"])
def test_modules_that_are_not_meant_are_left_to_python(name: str, finder: Finder) -> None:
    assert finder.find_spec(name) is None


@pytest.mark.parametrize(
    "name",
    ["tensorflow.contrib", "tensorflow.contrib.tpu", "tensorflow.contrib.tpu.python"]
    + ["tensorflow.contrib.tpu.python.tpu", "tensorflow.contrib.tpu.python.tpu.tpu_config"],
)
def test_modules_of_contrib_are_found(name: str, finder: Finder) -> None:
    spec = finder.find_spec(name)
    assert spec is not None
    assert spec.name == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tensorflow.contrib.no_such_part", "TensorFlow 2 has no tf.contrib"),
        ("tensorflow_estimator.python.estimator.canned", "from tf.estimator"),
        ("tensorflow.python.estimator.canned", "from tf.estimator"),
    ],
)
def test_modules_that_are_not_supplied_say_what_to_do(
    name: str, message: str, finder: Finder
) -> None:
    with pytest.raises(ModuleNotFoundError, match=message) as error:
        finder.find_spec(name)
    assert error.value.name == name
