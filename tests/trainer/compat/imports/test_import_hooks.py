import importlib.util
import sys

import pytest

from trainer.compat.imports.import_hooks import ImportHook


@pytest.fixture
def import_hook() -> ImportHook:
    return ImportHook(lambda: None)


@pytest.mark.parametrize("name", ["absl", "tensorflow_hub", "tensorflow.python.ops", "trainer"])
def test_other_modules_are_left_to_python(name: str, import_hook: ImportHook) -> None:
    assert import_hook.find_spec(name) is None


@pytest.mark.parametrize(
    "name",
    ["tensorflow.contrib", "tensorflow.contrib.tpu", "tensorflow.contrib.tpu.python"]
    + ["tensorflow.contrib.tpu.python.tpu", "tensorflow.contrib.tpu.python.tpu.tpu_config"]
    + ["tensorflow.python.training.tracking", "tensorflow.python.training.tracking.base"],
)
def test_modules_that_tensorflow_has_removed_are_found(name: str, import_hook: ImportHook) -> None:
    spec = import_hook.find_spec(name)
    assert spec is not None
    assert spec.name == name


def test_error_of_an_unsupported_module_says_what_to_use(import_hook: ImportHook) -> None:
    name = "tensorflow.contrib.no_such_part"
    with pytest.raises(ModuleNotFoundError, match="TensorFlow 2 has no tf.contrib") as error:
        import_hook.find_spec(name)
    assert error.value.name == name


def test_package_inside_contrib_says_what_replaces_a_missing_module(
    import_hook: ImportHook,
) -> None:
    spec = import_hook.find_spec("tensorflow.contrib.tpu.python.tpu")
    assert spec is not None
    package = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(package)
    with pytest.raises(AttributeError, match="Use trainer.model_to_tpu_estimator"):
        _ = sys.modules.pop(package.__name__).keras_support
