"""The two kinds of Keras, as the rest of this package asks them."""

import contextlib
import importlib
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.keras.model.tracing import eager_mode


class KerasAdapter(Protocol):
    """Keras 3 or tf_keras.

    Attributes:
      name: how messages call it.
      has_graph_mode: whether a model can be one of TensorFlow 1, made without eager execution.
    """

    name: str
    has_graph_mode: bool

    def load(self, path: str, custom_objects: Mapping[str, Any] | None) -> Any:
        """The model that a file or a SavedModel holds."""

    def input_names(self, model: Any) -> Any:
        """The names of a model's inputs: one, or a list or dict; None where it does not say."""

    def input_specs(self, model: Any) -> Mapping[str, Any] | None:
        """Name → TensorSpec of the inputs; None where the model does not say."""

    def output_names(self, model: Any) -> Sequence[str] | None:
        """The names of a model's outputs, flat; None where it does not say."""

    def layers(self, model: Any) -> Iterable[Any]:
        """The model and all layers in it, at any depth."""

    def build_optimizer(self, model: Any) -> None:
        """Makes the optimizer's variables, where they are not there yet."""

    def model_variables(self, model: Any) -> list[tuple[str, Any, bool]]:
        """Path, tf.Variable and whether it is trained, of all that a model keeps."""

    def optimizer_variables(self, model: Any) -> list[tuple[str, Any]]:
        """Path and tf.Variable of all that its optimizer keeps."""

    def trainable_variables(self, model: Any) -> list[Any]:
        """The tf.Variables that gradients are made for."""

    def moving_averages(self, model: Any) -> list[Any]:
        """The tf.Variables of moving averages, one for each trained variable, or none of all."""

    def iterations(self, model: Any) -> Any:
        """The variable that counts the optimizer's steps."""

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        """What the model returns."""

    def compute_loss(
        self, model: Any, x: Any, y: Any, y_pred: Any, weights: Any, replicas: int
    ) -> Any:
        """The loss of a batch, with what layers add; each replica's is for a mean over them."""

    def scale_loss(self, model: Any, loss: Any) -> Any:
        """The loss that gradients are made of."""

    def apply_gradients(self, model: Any, gradients: Sequence[Any]) -> None:
        """Has the optimizer make a step."""

    def per_replica_seeds(self, model: Any) -> Any:
        """A context in which random layers draw something else on each replica."""

    def metric_variables(self, model: Any) -> list[Any]:
        """The tf.Variables of all metrics; once they are built."""

    def local_variables(self) -> list[Any]:
        """The tf.Variables of Keras itself that a model may use, and no checkpoint has."""

    def update_metrics(self, model: Any, y: Any, y_pred: Any, weights: Any) -> None:
        """Takes a batch into account."""

    def metric_results(self, model: Any) -> dict[str, Any]:
        """Name → value, as evaluate() names them, but for the loss."""

    def loss_names(self, model: Any) -> set[str]:
        """The names of the metrics that are losses of single outputs."""

    def reset_metrics(self, model: Any) -> None:
        """Sets metrics back."""

    def get_mask(self, tensor: Any) -> Any:
        """The mask of an output, or None."""

    def set_mask(self, tensor: Any, mask: Any) -> None:
        """Gives an output its mask."""

    def finish_training(self, model: Any) -> None:
        """Does what fit() does at its end."""

    def unsupported_options(self, model: Any, use_tpu: bool) -> Iterable[tuple[str, str]]:
        """Options of `trainer.keras.model.unsupported_options` that a model has,
        each with where it has it.
        """

    def describe(self, model: Any) -> dict[str, str]:
        """What is converted, in words: loss, metrics and what else a log line says."""


def find_adapter(model: Any) -> KerasAdapter:
    """The kind of Keras that a model is of.

    Raises:
      InvalidType: it is no Keras model.
    """
    for kind in type(model).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ == "Model" and package in _MODULES:
            return _import_adapter(package)
    raise InvalidType(f"keras_model is {model!r}. Give a keras.Model, of Keras 3 or of tf_keras.")


def load_model(path: str, custom_objects: Mapping[str, Any] | None) -> tuple[KerasAdapter, Any]:
    """A model that was saved, and its kind of Keras.

    Raises:
      InvalidSetting: there is none, or it needs classes or functions that are not given.
    """
    adapter = find_adapter_of_file(path)
    is_zip = zipfile.is_zipfile(path)
    if adapter.has_graph_mode and is_zip and not tf.__internal__.tf2.enabled():
        raise InvalidSetting(
            f"keras_model_path is {path!r}, and in a program with TensorFlow 1's behaviour "
            f"{adapter.name} reads no .keras file. Save the model by model.save('model.h5'), or "
            f"run the program with --no-tf1."
        )
    # Keras reads .keras files eagerly alone.
    is_of_graph = (
        adapter.has_graph_mode
        and not is_zip
        and not tf.compat.v1.executing_eagerly_outside_functions()
    )
    try:
        # A program of TensorFlow 1 has use for a model of its own kind alone.
        with contextlib.nullcontext() if is_of_graph else eager_mode():
            model = adapter.load(path, custom_objects)
    except Exception as error:
        # Whatever a file makes Keras raise, of which there is no end.
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidSetting(
            f"keras_model_path is {path!r}, and {adapter.name} cannot load it: {said} Give the "
            f"classes and functions of your own that the model needs as custom_objects."
        ) from error
    try:
        return find_adapter(model), model
    except InvalidType as error:
        raise InvalidSetting(
            f"keras_model_path is {path!r}, a SavedModel that has no Keras model in it, as "
            f"model.export and Estimators write them. Save one by model.save('model.keras')."
        ) from error


def find_adapter_of_file(path: str) -> KerasAdapter:
    """The kind of Keras that saved a model.

    Raises:
      InvalidSetting: there is nothing, or nothing that says.
    """
    place = Path(path)
    if place.is_dir():
        if not (place / "saved_model.pb").exists():
            raise InvalidSetting(
                f"keras_model_path is {path!r}, a directory without a SavedModel in it. Name a "
                f".keras or .h5 file, or the directory of a SavedModel by tf_keras."
            )
        # Keras 3 saves files alone; what it exports has no model in it.
        return _import_adapter("tf_keras")
    if not place.exists():
        raise InvalidSetting(
            f"keras_model_path is {path!r}, and there is nothing. Name a .keras or .h5 file, or "
            f"the directory of a SavedModel by tf_keras."
        )
    version = (
        _keras_version_of_zip(place) if zipfile.is_zipfile(place) else _keras_version_of_h5(place)
    )
    if version is None:
        raise InvalidSetting(
            f"keras_model_path is {path!r}, and the file is no Keras model. Save one by "
            f"model.save('model.keras')."
        )
    return _import_adapter("tf_keras" if version.startswith("2.") else "keras")


def _keras_version_of_zip(place: Path) -> str | None:
    with zipfile.ZipFile(place) as archive:
        if "metadata.json" not in archive.namelist():
            return None
        metadata = json.loads(archive.read("metadata.json"))
    return str(metadata.get("keras_version", ""))


def _keras_version_of_h5(place: Path) -> str | None:
    import h5py  # type: ignore[import-untyped]

    if not h5py.is_hdf5(place):
        return None
    with h5py.File(place) as file:
        version = file.attrs.get("keras_version")
    if version is None:
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


_MODULES = {"keras": "trainer.keras.keras3.adapter", "tf_keras": "trainer.keras.tf_keras.adapter"}


def _import_adapter(package: str) -> KerasAdapter:
    # Whoever has a model of one kind need not pay for the import of the other.
    adapter: KerasAdapter = importlib.import_module(_MODULES[package]).ADAPTER
    return adapter
