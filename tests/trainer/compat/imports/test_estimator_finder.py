import importlib
import importlib.metadata
from pathlib import Path

import pytest

from trainer.compat.imports import estimator_finder

PACKAGE = "tensorflow_estimator.python.estimator"


@pytest.fixture(autouse=True)
def finder() -> None:
    estimator_finder.install()


def canned_files() -> dict[str, Path]:
    directory = estimator_finder.find_package_directory()
    files = [*directory.glob("canned/**/*.py"), *directory.glob("head/*.py")]
    paths = {".".join(file.relative_to(directory).with_suffix("").parts): file for file in files}
    return {path: paths[path] for path in paths if estimator_finder.is_canned_module(path)}


def test_tensorflow_has_every_name_that_the_canned_estimators_read() -> None:
    missing = {
        name
        for file in canned_files().values()
        for name in estimator_finder.find_missing_names(file)
    }
    assert missing == set()


def test_a_name_that_tensorflow_has_lost_is_found(tmp_path: Path) -> None:
    file = tmp_path / "canned.py"
    file.write_text(
        "import tensorflow as tf\n"
        "from tensorflow.python.ops import nn_gone, array_ops\n"
        "tf.no_such_name.x(array_ops.no_such_op, array_ops.concat, tf.nn.relu)\n"
    )
    assert set(estimator_finder.find_missing_names(file)) == {
        "tensorflow.no_such_name",
        "tensorflow.no_such_name.x",
        "tensorflow.python.ops.array_ops.no_such_op",
        "tensorflow.python.ops.nn_gone",
    }


def test_canned_internals_are_the_wheels_and_all_others_are_ours() -> None:
    head = importlib.import_module(f"{PACKAGE}.canned.head")
    assert Path(head.__file__ or "").parent == estimator_finder.find_package_directory() / "canned"
    estimator = importlib.import_module(f"{PACKAGE}.estimator")
    assert estimator.Estimator.__module__ == "trainer.estimator.estimator"
    assert head.model_fn._TPUEstimatorSpec.__module__ == "trainer.compat.canned_heads"


def test_both_roots_have_the_same_modules() -> None:
    first = importlib.import_module(f"{PACKAGE}.canned.metric_keys")
    assert importlib.import_module("tensorflow.python.estimator.canned.metric_keys") is first


def test_modules_for_the_tpu_are_those_of_tf_contrib_tpu() -> None:
    module = importlib.import_module(f"{PACKAGE}.tpu.tpu_estimator")
    assert module.__name__ == "trainer.compat.contrib.tpu.tpu_estimator"


@pytest.mark.parametrize("module", ["canned.dnn_testing_utils", "tools"])
def test_other_modules_of_the_wheel_are_not_loaded(module: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=rf"{module} is not supplied\. Import the names"):
        importlib.import_module(f"{PACKAGE}.{module}")


def test_a_module_of_what_cannot_run_says_why() -> None:
    package = importlib.import_module(f"{PACKAGE}.canned")
    with pytest.raises(ModuleNotFoundError, match="no kernel for them"):
        exec(f"from {package.__name__} import boosted_trees")


@pytest.mark.parametrize(
    ("installed", "found"), [(None, "it is not installed"), ("2.12.0", "2.12.0 is installed")]
)
def test_a_missing_or_other_version_of_the_wheel_is_named(
    installed: str | None, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed is not None:
        information = tmp_path / f"tensorflow_estimator-{installed}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Name: tensorflow-estimator\nVersion: {installed}\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError) as raised:
        estimator_finder.find_package_directory()
    assert str(raised.value) == (
        f"The canned estimators and heads of tf.estimator need the package tensorflow-estimator "
        f"2.15.0; {found}. Run `pip install tensorflow-estimator==2.15.0`."
    )
