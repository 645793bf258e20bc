from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tf_keras

from tpuserve.errors import InvalidSetting
from tpuserve.export.functional.keras_file import load_keras_file

pytestmark = [
    # Keras itself causes both warnings when it saves a model.
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file:UserWarning"),
]


class Scale(keras.layers.Layer):  # type: ignore[misc,unused-ignore]
    def call(self, x: Any) -> Any:
        return 2 * x


def triple(x: Any) -> Any:
    return 3 * x


def save(package: Any, path: Path, *, with_lambda: bool = False) -> Path:
    layers = [package.layers.Input([2]), package.layers.Dense(1, kernel_initializer="ones")]
    if with_lambda:
        layers.append(package.layers.Lambda(lambda x: x + 1))
    package.Sequential(layers).save(path)
    return path


@pytest.mark.parametrize("package", [tf_keras, keras], ids=["tf_keras", "keras"])
@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_file_is_loaded_by_the_keras_that_saved_it(
    tmp_path: Path, package: Any, suffix: str
) -> None:
    model = load_keras_file(save(package, tmp_path / f"model.{suffix}"))
    assert isinstance(model, package.Model)
    assert np.asarray(model(np.array([[1.0, 2.0]], np.float32))).tolist() == [[3.0]]


@pytest.mark.parametrize("package", [tf_keras, keras], ids=["tf_keras", "keras"])
@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_code_in_a_file_is_not_run(tmp_path: Path, package: Any, suffix: str) -> None:
    path = save(package, tmp_path / f"model.{suffix}", with_lambda=True)
    with pytest.raises(InvalidSetting, match="Lambda"):
        load_keras_file(path)


@pytest.mark.parametrize(
    ("package", "layer", "own_code"),
    [
        (keras, Scale(), "the class Scale"),
        (keras, keras.layers.Activation(triple), "the function triple"),
        (tf_keras, tf_keras.layers.Activation(triple), "the function triple"),
        (keras, keras.layers.Lambda(lambda x: x), "the code of a Lambda layer"),
    ],
    ids=["class", "function", "function of tf_keras", "Lambda"],
)
def test_own_code_is_named_with_the_command_that_exports_it(
    tmp_path: Path, package: Any, layer: Any, own_code: str
) -> None:
    path = tmp_path / "own.keras"
    package.Sequential([package.layers.Input([2]), layer]).save(path)
    with pytest.raises(InvalidSetting) as caught:
        load_keras_file(path)
    argument = f'"{path}"' + (", safe_mode=False" if "Lambda" in own_code else "")
    name = package.__name__
    assert str(caught.value) == (
        f"{path} needs {own_code}, which Keras does not have. Export it where its code is: python "
        f"-c 'import YOUR_MODULE, {name}; from tpuserve.export import export; "
        f'export({name}.saving.load_model({argument}), "{tmp_path}/own")\''
    )


def test_other_paths_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="^no file .*gone.keras. Name a .keras or .h5 file.$"):
        load_keras_file(tmp_path / "gone.keras")
    (tmp_path / "text.keras").write_text("no model")
    with pytest.raises(InvalidSetting, match="text.keras is no model of Keras that can be read"):
        load_keras_file(tmp_path / "text.keras")
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(InvalidSetting, match="is a SavedModel .*run: tpuserve convert"):
        load_keras_file(tmp_path)
