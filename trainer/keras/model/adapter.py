"""The interface of the adapters for Keras 3 and for tf_keras, and the choice of an adapter."""

import contextlib
import functools
import importlib
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer import keras_internals
from trainer.keras.model.tracing import eager_mode
from trainer.keras_internals import KERAS_3, TF_KERAS


class KerasAdapter(Protocol):
    """Uniform access to the models of one version of Keras: Keras 3 or tf_keras (Keras 2).

    All variables that the methods return are eager tf.Variables.

    Attributes:
      has_graph_mode: whether this Keras version can build models without eager execution, as in
        programs of TensorFlow 1.
    """

    name: str
    has_graph_mode: bool

    def load(self, path: str, custom_objects: Mapping[str, Any] | None) -> Any:
        """Load a Keras model from a .keras or .h5 file, or from the directory of a SavedModel."""

    def input_names(self, model: Any) -> Any:
        """Return the names of a model's inputs.

        Returns:
          One name, or a list or dict of names with the structure of the model's inputs; None if
          the model does not define its inputs, like a subclassed model.
        """

    def input_specs(self, model: Any) -> Mapping[str, Any] | None:
        """Return input name → TensorSpec; None if the model does not define its inputs."""

    def output_names(self, model: Any) -> Sequence[str] | None:
        """Return the names of a model's flattened outputs; None if the model defines no outputs."""

    def layers(self, model: Any) -> Iterable[Any]:
        """Return the model and all layers inside it, at any depth."""

    def build_optimizer(self, model: Any) -> None:
        """Create the variables of a model's optimizer, unless they exist."""

    def model_variables(self, model: Any) -> list[tuple[str, Any, bool]]:
        """Return the variables of a model as a list of (path, tf.Variable, is trainable)."""

    def optimizer_variables(self, model: Any) -> list[tuple[str, Any]]:
        """Return the variables of a model's optimizer as a list of (path, tf.Variable)."""

    def trainable_variables(self, model: Any) -> list[Any]:
        """Return a model's trainable tf.Variables, in the order that apply_gradients expects."""

    def moving_averages(self, model: Any) -> list[Any]:
        """Return the tf.Variables with moving averages of a model's trainable variables.

        The list is empty if the optimizer's option use_ema is not set.
        """

    def iterations(self, model: Any) -> Any:
        """Return the tf.Variable that counts the steps of a model's optimizer."""

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        """Call the model on a batch and return its outputs.

        Args:
          x: the inputs, a nest of tensors [batch size, ...].
          training: whether layers such as dropout behave as in training.
        """

    def compute_loss(
        self, model: Any, x: Any, y: Any, y_pred: Any, weights: Any, replicas: int
    ) -> Any:
        """Compute the total loss of a batch, including the losses that layers add.

        Args:
          replicas: the number of replicas. A loss that is a sum over examples is multiplied by this
            number, so that the mean of the replicas' losses is the loss of the global batch.
        """

    def scale_loss(self, model: Any, loss: Any) -> Any:
        """Multiply the loss by the optimizer's loss scale, before gradients are computed.

        Without mixed precision the loss is returned unchanged.
        """

    def apply_gradients(self, model: Any, gradients: Sequence[Any]) -> None:
        """Run one step of the optimizer, with one gradient for each trainable variable."""

    def per_replica_seeds(self, model: Any) -> Any:
        """Return a context in which random layers draw different numbers on each replica."""

    def metric_variables(self, model: Any) -> list[Any]:
        """Return the tf.Variables of a model's metrics.

        Some metrics create their variables only when they process their first batch.
        """

    def local_variables(self) -> list[Any]:
        """Return the tf.Variables of Keras that belong to no model, such as its global seed."""

    def update_metrics(self, model: Any, y: Any, y_pred: Any, weights: Any) -> None:
        """Update the metrics of a model with a batch.

        Args:
          y: the labels, a nest of tensors [batch size, ...].
        """

    def metric_results(self, model: Any) -> dict[str, Any]:
        """Return metric name → value, as model.evaluate does, but without the total loss."""

    def loss_names(self, model: Any) -> set[str]:
        """Return the names of those metrics of a model that report the loss of one output."""

    def reset_metrics(self, model: Any) -> None:
        """Reset the state of all metrics of a model."""

    def get_mask(self, tensor: Any) -> Any:
        """Return the mask that Keras has attached to an output tensor; None without a mask."""

    def set_mask(self, tensor: Any, mask: Any) -> None:
        """Attach a mask to an output tensor, so that Keras's losses and metrics find it."""

    def finish_training(self, model: Any) -> None:
        """Finish the training of a model, as model.fit does at its end.

        If the optimizer keeps moving averages of the weights, they replace the weights.
        """

    def unsupported_options(self, model: Any, use_tpu: bool) -> Iterable[tuple[str, str]]:
        """Find the options of a model that an estimator does not support.

        Returns:
          For each such option: its key in `trainer.keras.model.unsupported_options`, and the name
          of the layer or object that has the option ('' for the model itself).
        """

    def describe(self, model: Any) -> dict[str, str]:
        """Describe compile()'s arguments for the log, for example {"optimizer": "SGD(0.01)"}."""


def find_adapter(model: Any) -> KerasAdapter:
    """Return the adapter for the version of Keras from which a model's class is derived.

    Raises:
      UnsupportedVersion: the installed Keras lacks a private name that trainer uses.
    """
    for kind in type(model).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ == "Model" and package in _ADAPTER_MODULES:
            return _import_adapter(package)
    raise InvalidType(f"keras_model must be a keras.Model, of Keras 3 or tf_keras (got {model!r}).")


def load_model(path: str, custom_objects: Mapping[str, Any] | None) -> tuple[KerasAdapter, Any]:
    """Load a saved model with the version of Keras, Keras 3 or tf_keras, that wrote it.

    Args:
      custom_objects: name → class or function that the file needs.

    Raises:
      InvalidSetting: there is no model at the path; or the model needs classes or functions that
        custom_objects lacks; or the path is a .keras file of tf_keras, and the program has
        TensorFlow 1 behaviour.
      UnsupportedVersion: the installed Keras lacks a private name that trainer uses.
    """
    adapter = _find_adapter_of_file(path)
    is_zip = zipfile.is_zipfile(path)
    if adapter.has_graph_mode and is_zip and not tf.__internal__.tf2.enabled():
        raise InvalidSetting(
            f"keras_model_path is {path!r}, and {adapter.name} cannot read a .keras file in a "
            f"program with TensorFlow 1 behaviour. Save the model by model.save('model.h5'), or "
            f"run the program with --no-tf1."
        )
    # If the program has disabled eager execution, load a model of tf_keras into the default graph,
    # as tf_keras.models.load_model does in such a program.
    builds_graph_model = (
        adapter.has_graph_mode
        and not is_zip
        and not tf.compat.v1.executing_eagerly_outside_functions()
    )
    try:
        with contextlib.nullcontext() if builds_graph_model else eager_mode():
            model = adapter.load(path, custom_objects)
    except Exception as error:
        # Catch all exceptions, because Keras raises errors of any type if it cannot read a file.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidSetting(
            f"keras_model_path is {path!r}, and {adapter.name} cannot load it: {reason} Pass the "
            f"model's own classes and functions as custom_objects."
        ) from error
    try:
        return find_adapter(model), model
    except InvalidType as error:
        raise InvalidSetting(
            f"keras_model_path is {path!r}, a SavedModel without a Keras model, as model.export "
            f"and Estimators write them. Save the model by model.save('model.keras')."
        ) from error


def _find_adapter_of_file(path: str) -> KerasAdapter:
    file = Path(path)
    if file.is_dir():
        if not (file / "saved_model.pb").exists():
            raise InvalidSetting(
                f"keras_model_path is {path!r}, a directory without a SavedModel. Use a .keras or "
                f".h5 file, or the directory of a SavedModel that tf_keras wrote."
            )
        # Only tf_keras saves a Keras model as a directory. Keras 3 exports SavedModels too, but
        # they contain no Keras model.
        return _import_adapter(TF_KERAS)
    if not file.exists():
        raise InvalidSetting(
            f"keras_model_path is {path!r}, which does not exist. Use a .keras or .h5 file, or "
            f"the directory of a SavedModel that tf_keras wrote."
        )
    is_zip = zipfile.is_zipfile(file)
    version = _keras_version_of_zip(file) if is_zip else _keras_version_of_h5(file)
    if version is None:
        raise InvalidSetting(
            f"keras_model_path is {path!r}, and the file is not a Keras model. Save a model by "
            f"model.save('model.keras')."
        )
    return _import_adapter(TF_KERAS if version.startswith("2.") else KERAS_3)


def _keras_version_of_zip(file: Path) -> str | None:
    with zipfile.ZipFile(file) as archive:
        if "metadata.json" not in archive.namelist():
            return None
        metadata = json.loads(archive.read("metadata.json"))
    return str(metadata.get("keras_version", ""))


def _keras_version_of_h5(file: Path) -> str | None:
    import h5py  # type: ignore[import-untyped]

    if not h5py.is_hdf5(file):
        return None
    with h5py.File(file) as archive:
        version = archive.attrs.get("keras_version")
    if version is None:
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


_ADAPTER_MODULES = {
    KERAS_3: "trainer.keras.keras3_adapter",
    TF_KERAS: "trainer.keras.tf_keras_adapter",
}


@functools.cache
def _import_adapter(package: str) -> KerasAdapter:
    keras_internals.check_private_names(package)
    adapter: KerasAdapter = importlib.import_module(_ADAPTER_MODULES[package]).ADAPTER
    return adapter
