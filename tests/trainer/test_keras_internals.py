"""Keras's private names: all exist, and a missing one is reported with the version of Keras."""

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trainer
from tpuserve.errors import UnsupportedVersion
from trainer import keras_internals
from trainer.keras_internals import KERAS_3, TF_KERAS

_each_package = pytest.mark.parametrize("package", [KERAS_3, TF_KERAS])
_BOUNDS = {KERAS_3: "keras>=3.10,<3.16", TF_KERAS: "tf-keras>=2.20.1,<2.22"}


def test_no_other_module_imports_from_a_private_module_of_keras() -> None:
    importing = {
        path.name
        for path in Path(trainer.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(("keras.src", "tf_keras.src"))
    }
    assert importing == set()


def test_bounds_in_errors_are_those_of_pyproject() -> None:
    pyproject = Path(trainer.__file__).parents[1] / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8")
    assert all(f'"{bounds}"' in text for bounds in _BOUNDS.values())


@pytest.mark.slow
@_each_package
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_installed_keras_has_every_private_name(package: str) -> None:
    # Keras's global name counters and seeds must not change for other tests.
    program = f"""if True:
        import {package}
        from trainer.keras_internals import check_keras_internals
        check_keras_internals({package!r})
        print("complete")
    """
    ran = subprocess.run([sys.executable, "-c", program], stdout=-1, check=True, text=True)
    assert ran.stdout.splitlines()[-1] == "complete"


@_each_package
def test_missing_names_and_parameters_are_reported_with_the_version(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keras = pytest.importorskip(package)
    monkeypatch.setitem(keras_internals._NAMES, "gone", (f"{package}.src.backend", "gone"))
    monkeypatch.setitem(keras_internals._METHODS, f"{package}.Model", {"_gone": (1, ())})
    loss = {KERAS_3: "CompileLoss", TF_KERAS: "LossesContainer"}[package]
    monkeypatch.setitem(keras_internals._CALLS, loss, (2, ("gone",)))
    with pytest.raises(UnsupportedVersion) as error:
        keras_internals.check_private_names(package)
    module = keras_internals._NAMES[loss][0]
    assert str(error.value) == (
        f"{package} {keras.__version__} lacks private names that trainer uses: "
        f"{module}.{loss} (got an unexpected keyword argument 'gone'), "
        f"{package}.src.backend.gone, {package}.Model._gone. "
        f"Install a supported version: {_BOUNDS[package]}."
    )


@_each_package
def test_missing_attribute_is_reported_with_the_package_of_the_object(package: str) -> None:
    keras = pytest.importorskip(package)
    own: Callable[..., Any] = type("Own", (keras.Model,), {})
    with pytest.raises(UnsupportedVersion, match=rf"^{package} .* uses: Own\._gone\. Install"):
        keras_internals.get_private_attribute(own(), "_gone")


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = keras_internals.no_such_name
