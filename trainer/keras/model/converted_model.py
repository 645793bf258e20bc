"""A Keras model that an estimator runs, with its names and its variables in checkpoints."""

import logging
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.keras.model import batch_errors, variables
from trainer.keras.model.adapter import KerasAdapter
from trainer.keras.model.name_maps import NameMaps
from trainer.keras.model.tracing import eager_mode

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
            except batch_errors.BATCH_ERRORS as error:
                raise batch_errors.explain_batch_error(
                    error, self.label, {"features": x}
                ) from error
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
