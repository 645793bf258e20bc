"""A Keras model that an estimator runs, with its names and its variables in checkpoints."""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType, MissingKey, TpuserveError
from trainer.keras.model import variables
from trainer.keras.model.adapter import KerasAdapter
from trainer.keras.model.tracing import eager_mode
from trainer.tensorflow_internals import PredictOutput, StagingError

_DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class NameMaps:
    """The options metric_names_map and export_outputs of `model_to_tpu_estimator`.

    The options follow the rules of model_to_estimator in tensorflow_estimator's file keras_lib.py.

    Attributes:
      metrics: Keras metric name → name in the result of evaluate(), for all metrics except the
        losses; None or an empty map keeps Keras's names.
      outputs: output name → class of a tf.estimator export output, which is called with the
        output's tensor. None or an empty map exports only the signature serving_default, which
        contains all outputs.
    """

    metrics: Mapping[str, str] | None = None
    outputs: Mapping[str, Callable[[Any], Any]] | None = None

    def __post_init__(self) -> None:
        """Check the types of both maps."""
        for option, value in (
            ("metric_names_map", self.metrics),
            ("export_outputs", self.outputs),
        ):
            if value is not None and not isinstance(value, Mapping):
                raise InvalidType(f"{option} must be a dict or None (got {value!r}).")
        for name, output_class in (self.outputs or {}).items():
            if not callable(output_class):
                raise InvalidType(
                    f"export_outputs[{name!r}] must be a class that is called with the output, "
                    f"such as tf.estimator.export.ClassificationOutput (got {output_class!r})."
                )
        for name, new_name in (self.metrics or {}).items():
            if new_name == "loss":
                raise InvalidSetting(
                    f"metric_names_map[{name!r}] is 'loss', which is already a key of the result "
                    f"of evaluate(). Give the metric another name."
                )

    def rename_metrics(self, results: Mapping[str, Any], losses: set[str]) -> dict[str, Any]:
        """Rename the metrics of a model as the user requested.

        Args:
          losses: the names of those metrics that report the loss of one output. They stay
            unchanged.

        Raises:
          InvalidSetting: metric_names_map lacks a metric, or names a loss or a metric that the
            model does not have.
        """
        if not self.metrics:
            return dict(results)
        expected = [name for name in results if name not in losses]
        missing = [name for name in expected if name not in self.metrics]
        unknown = [name for name in self.metrics if name not in expected]
        if missing or unknown:
            problems = [
                f"{', '.join(names)} {problem}"
                for names, problem in ((missing, "is missing"), (unknown, "is not a metric"))
                if names
            ]
            raise InvalidSetting(
                f"metric_names_map has the keys {', '.join(self.metrics)}, and the model has the "
                f"metrics {', '.join(expected) or 'none'}: {'; '.join(problems)}. Name each "
                f"metric once, and no loss."
            )
        return {self.metrics.get(name, name): result for name, result in results.items()}

    def export_outputs(self, predictions: Mapping[str, Any]) -> dict[str, Any] | None:
        """Build the export outputs of a model.

        Returns:
          Signature name → tf.estimator export output. None if the option export_outputs is None or
          empty: the export then has only the default signature.
        """
        if not self.outputs:
            return None
        self.check_output_names(list(predictions))
        own = {name: kind(predictions[name]) for name, kind in self.outputs.items()}
        return {_DEFAULT_SIGNATURE: PredictOutput(dict(predictions)), **own}

    def check_output_names(self, names: list[str]) -> None:
        """Check that the model has every output that export_outputs names."""
        unknown = [name for name in self.outputs or {} if name not in names]
        if unknown:
            raise MissingKey(
                f"export_outputs has the keys {', '.join(self.outputs or {})}, and the model has "
                f"the outputs {', '.join(names)}: {', '.join(unknown)} is not an output. Use "
                f"names of the model's outputs; the signature serving_default always exists."
            )


BATCH_ERRORS = (ValueError, TypeError, LookupError, AttributeError, StagingError, tf.errors.OpError)
"""The errors that Keras and TensorFlow raise for a batch that does not fit the model."""
_COLOUR_CODE = re.compile(r"\x1b\[\d*m")


def explain_batch_error(
    error: BaseException, label: str, parts: Mapping[str, Any]
) -> BaseException:
    """Return the error to raise in place of an error that Keras raised for a batch.

    Args:
      error: an error that Keras raised while it traced a step or built the model.
      label: a description of the model for the message, such as "tf_keras model digits".
      parts: name of a part of the batch, such as "features" → a tensor, a nest of tensors, or None.

    Returns:
      An InvalidSetting that describes the batch; or the original error, if it is a TpuserveError,
      which already has a clear message.
    """
    original = _original_error(error)
    if isinstance(original, TpuserveError):
        return original
    shapes = ", ".join(f"{name} {_format_shapes(part)}" for name, part in parts.items())
    explained = InvalidSetting(
        f"{label} cannot process the batch: {_first_sentence(original)} The batch has {shapes}. "
        f"input_fn must return (features, labels) or (features, labels, sample_weight), as for "
        f"model.fit."
    )
    explained.__cause__ = original
    return explained


def _original_error(error: BaseException) -> BaseException:
    """Return the error that AutoGraph has replaced by an error with a long message."""
    while hasattr(error.__context__, "ag_error_metadata"):
        assert error.__context__ is not None
        error = error.__context__
    return error


def _first_sentence(error: BaseException) -> str:
    """Cut an error's message to its first line that describes the problem; return a sentence."""
    text = _COLOUR_CODE.sub("", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Skip the line with which Keras's message starts: it names the layer and not the problem.
    problems = [line for line in lines if not line.startswith("Exception encountered")]
    sentence = (problems or lines or [type(error).__name__])[0]
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def _format_shapes(part: Any) -> str:
    """Format the dtypes and shapes of a nest of tensors."""
    if part is None:
        return "none"
    if isinstance(part, dict):
        return (
            "{"
            + ", ".join(f"{name}: {_format_shapes(value)}" for name, value in part.items())
            + "}"
        )
    if isinstance(part, (list, tuple)):
        return "[" + ", ".join(_format_shapes(value) for value in part) + "]"
    return f"{part.dtype.name}{part.shape}"


logger = logging.getLogger("tensorflow.trainer")


class ConvertedModel:
    """A Keras model that was converted to an estimator.

    Attributes:
      model: the Keras model. Training does not change its weights; only `to_keras` assigns them.
      graph_model: the original model, if `model` is a clone because the original was built without
        eager execution; otherwise None.
      label: a description of the model for messages, such as "tf_keras model digits".
    """

    def __init__(
        self,
        adapter: KerasAdapter,
        model: Any,
        *,
        is_in_checkpoint: bool,
        graph_model: Any = None,
        name_maps: NameMaps | None = None,
    ) -> None:
        self.adapter, self.model, self.graph_model = adapter, model, graph_model
        self.name_maps = name_maps or NameMaps()
        with eager_mode():
            self.input_names = adapter.input_names(model)
            output_names = adapter.output_names(model)
        if output_names is not None:
            self.name_maps.check_output_names(list(output_names))
        self.label = f"{adapter.name} model {model.name}"
        self.is_in_checkpoint = is_in_checkpoint
        self._variables: list[variables.CheckpointVariable] | None = None
        self._optimizer = self._users_model.optimizer

    @property
    def is_built(self) -> bool:
        """Return whether the model's variables exist."""
        with eager_mode():
            return bool(self.model.built) and bool(self.model.variables or not self.model.layers)

    def check_same_optimizer(self) -> None:
        """Check that the model still has the optimizer with which it was converted.

        Raises:
          InvalidSetting: the program has called model.compile since the conversion.
        """
        if self._users_model.optimizer is not self._optimizer:
            raise InvalidSetting(
                f"{self.label} was compiled again after its conversion to a TPUEstimator, and its "
                f"checkpoints contain the state of the previous optimizer. Call "
                f"model_to_tpu_estimator again, with another model_dir."
            )

    @property
    def _users_model(self) -> Any:
        """Return the user's model: the original if `model` is a clone, otherwise `model` itself."""
        return self.model if self.graph_model is None else self.graph_model

    def variables(self) -> list[variables.CheckpointVariable]:
        """Return the variables of the model and of its optimizer, with their names in checkpoints.

        The model must be built. The variables of its optimizer are created if necessary.
        """
        if self._variables is None:
            self._variables = variables.collect_variables(self.adapter, self.model)
        return self._variables

    def initial_values(self) -> dict[str, Any]:
        """Return the initial values of all variables: name → array.

        The result is empty if a checkpoint has the variables.
        """
        if self.is_in_checkpoint:
            return {}
        return variables.initial_values(self.adapter, self.model, self.variables())

    def build_from(self, x: Any) -> None:
        """Build the model, if it has no variables yet, by calling it on zeros.

        Args:
          x: a batch of the model's inputs: a tensor or a nest of tensors. The zeros have the same
            shapes and dtypes.
        """
        if self.is_built:
            return
        # Use a graph that is discarded: a lookup table adds its initializer to the default graph.
        with tf.Graph().as_default(), eager_mode():
            zeros = tf.nest.map_structure(
                lambda tensor: tf.zeros([size or 1 for size in tensor.shape], tensor.dtype), x
            )
            try:
                self.adapter.call(self.model, zeros, training=False)
            except BATCH_ERRORS as error:
                raise explain_batch_error(error, self.label, {"features": x}) from error
        logger.info("%s: built for its first batch, with new weights", self.label)

    def named_outputs(self, outputs: Any) -> dict[str, Any]:
        """Name the tensors that the model returns.

        Returns:
          Output name → tensor. Outputs without a name are called output_1, output_2 and so on.
        """
        if isinstance(outputs, dict):
            return {str(name): tensor for name, tensor in outputs.items()}
        tensors = tf.nest.flatten(outputs)
        with eager_mode():
            names = self.adapter.output_names(self.model)
        if names is None or len(names) != len(tensors):
            names = [f"output_{number}" for number in range(1, len(tensors) + 1)]
        taken: set[str] = set()
        return {
            variables.make_unique(name, taken): tensor
            for name, tensor in zip(names, tensors, strict=True)
        }
