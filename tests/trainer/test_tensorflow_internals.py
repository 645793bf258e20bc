"""TensorFlow's private names: all exist, and a missing one is reported with the version."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trainer
from tpuserve.errors import UnsupportedVersion
from trainer import tensorflow_internals


def test_import_of_the_module_does_not_import_tensorflow() -> None:
    program = "import sys, trainer.tensorflow_internals; print('tensorflow' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], stdout=-1, check=True, text=True)
    assert ran.stdout == "False\n"


def test_no_other_module_of_trainer_imports_from_tensorflow_python() -> None:
    root = Path(trainer.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    importing = {
        path.relative_to(root).as_posix()
        for path, text in texts.items()
        # Parse only the few files that can hold such an import: parsing takes long.
        if "tensorflow.python" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tensorflow.python")
    }
    old_names = {path for path in importing if path.startswith("compat/contrib/")}
    assert importing - old_names == {"tensorflow_internals.py"}


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = tensorflow_internals.no_such_name


def test_installed_tensorflow_has_every_private_name() -> None:
    tensorflow_internals.check_tensorflow_internals()


def test_missing_names_are_reported_with_the_version_of_tensorflow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tensorflow as tf

    gone = ("tensorflow.python.framework.ops", "gone")
    monkeypatch.setitem(tensorflow_internals._NAMES, "gone", gone)
    monkeypatch.setitem(tensorflow_internals._OBJECT_ATTRIBUTES, "tf.Graph", ("_gone",))
    with pytest.raises(UnsupportedVersion, match=r"framework\.ops\.gone"):
        _ = tensorflow_internals.gone
    with pytest.raises(UnsupportedVersion) as error:
        tensorflow_internals.check_tensorflow_internals()
    assert str(error.value) == (
        f"TensorFlow {tf.__version__} lacks private names that trainer uses: "
        "tensorflow.python.framework.ops.gone, tf.Graph._gone. "
        "Install a supported version: tensorflow>=2.20,<2.22."
    )


def test_missing_attribute_of_an_object_is_reported() -> None:
    with pytest.raises(UnsupportedVersion, match=r"object\._last_step"):
        tensorflow_internals.get_stop_step(object())
    with pytest.raises(UnsupportedVersion, match=r"that trainer uses: object\._saver"):
        tensorflow_internals.set_scaffold_saver(object(), None)


def test_missing_attribute_of_a_module_is_reported_when_the_module_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(tensorflow_internals._MODULE_ATTRIBUTES, "tpu_ops", ("gone",))
    with pytest.raises(UnsupportedVersion, match=r"trainer uses: \S+tpu_ops\.gone\. Install"):
        tensorflow_internals.__getattr__("tpu_ops")
