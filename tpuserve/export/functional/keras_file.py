"""Loads a model from a Keras file, with the package that saved it: Keras 3 or tf_keras."""

import importlib
import importlib.util
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tpuserve.errors import InvalidSetting
from tpuserve.saved_model.proto_file import BINARY_NAME

# The JSON file in a .keras archive that holds the version of Keras under the key `_VERSION`. In an
# HDF5 file, an attribute with the name `_VERSION` holds the version instead.
_METADATA = "metadata.json"
_VERSION = "keras_version"
# The JSON file in a .keras archive that describes the model's layers.
_CONFIG = "config.json"
_PACKAGES = ("keras", "tf_keras")
_LAMBDA = "the code of a Lambda layer"


def load_keras_file(path: Path) -> Any:
    """Load a .keras or .h5 file.

    Code in the file, such as that of a Lambda layer, is not run.

    Raises:
      InvalidSetting: the file does not exist, or the Keras that saved it cannot load a model from
        it.
    """
    version = _read_version(path)
    package = "tf_keras" if version.startswith("2.") else "keras"
    # Keras 3 must use the backend TensorFlow, because TensorFlow writes the SavedModel.
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if importlib.util.find_spec(package) is None:
        raise InvalidSetting(f"{path} is of Keras {version}. Run: pip install {package}")
    saving = importlib.import_module(f"{package}.saving")
    try:
        return saving.load_model(str(path), compile=False, safe_mode=True)
    except Exception as error:
        # Keras raises exceptions of many types if it cannot read a file, so catch them all.
        own_code = next(_find_own_code(_read_config(path)), None)
        if own_code is not None:
            raise InvalidSetting(
                f"{path} needs {own_code}, which Keras does not have. Export it where its code is: "
                f"{_export_command(path, package, is_lambda=own_code == _LAMBDA)}"
            ) from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidSetting(
            f"{package} cannot load {path}: {reason} If the model has classes or functions of its "
            f"own, load it in Python and call tpuserve.export.export(model, directory)."
        ) from error


def _export_command(path: Path, package: str, *, is_lambda: bool) -> str:
    arguments = f'"{path}"' + (", safe_mode=False" if is_lambda else "")
    return (
        f"python -c 'import YOUR_MODULE, {package}; from tpuserve.export import export; "
        f'export({package}.saving.load_model({arguments}), "{path.with_suffix("")}")'
        f"'"
    )


def _find_own_code(config: Any) -> Iterator[str]:
    """Yield the Lambda layers, functions and classes of a model that are no part of Keras."""
    if isinstance(config, list):
        for item in config:
            yield from _find_own_code(item)
    if not isinstance(config, dict):
        return
    kind, registered_name = config.get("class_name"), config.get("registered_name")
    module = str(config.get("module")).partition(".")[0]
    if kind == "Lambda":
        yield _LAMBDA
    elif kind == "function":
        yield f"the function {config.get('config')}"
    elif registered_name and module not in (*_PACKAGES, "builtins"):
        yield f"the class {registered_name}"
    for value in config.values():
        yield from _find_own_code(value)


def _read_config(path: Path) -> Any:
    """Return the configuration of the model in a .keras file; None for another file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read(_CONFIG))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None


def _read_version(path: Path) -> str:
    """Return the version number of the Keras package that saved a file."""
    if (path / BINARY_NAME).is_file():
        raise InvalidSetting(
            f"{path} is a SavedModel and no file of Keras. To add a TPU metagraph to it, run: "
            f"tpuserve convert {path} OUT"
        )
    if not path.is_file():
        raise InvalidSetting(f"no file {path}. Name a .keras or .h5 file.")
    try:
        is_zip = path.suffix == ".keras" or zipfile.is_zipfile(path)
        version = _version_of_zip(path) if is_zip else _version_of_h5(path)
    except (OSError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidSetting(
            f"{path} is no model of Keras that can be read ({error}). Name a file that "
            f"model.save('model.keras') or model.save('model.h5') wrote."
        ) from error
    return version


def _version_of_zip(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        return str(json.loads(archive.read(_METADATA))[_VERSION])


def _has_lambda(config: Any) -> bool:
    if isinstance(config, dict):
        return config.get("class_name") == "Lambda" or any(map(_has_lambda, config.values()))
    return isinstance(config, list) and any(map(_has_lambda, config))


def _version_of_h5(path: Path) -> str:
    # Import h5py only here: it is slow to import, and few models are .h5 files.
    import h5py  # type: ignore[import-untyped,unused-ignore]

    with h5py.File(path, "r") as file:
        if "model_config" not in file.attrs:
            raise ValueError("it holds weights without a model")
        version = file.attrs[_VERSION]
        if _has_lambda(json.loads(file.attrs["model_config"])):
            raise ValueError("it holds the code of a Lambda layer, which is not run")
    return version.decode() if isinstance(version, bytes) else str(version)
