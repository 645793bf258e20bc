"""A Keras model that is being run as an estimator."""

import logging
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.keras.model import variables
from trainer.keras.model.adapter import KerasAdapter
from trainer.keras.model.name_maps import NameMaps
from trainer.keras.model.tracing import eager_mode
from trainer.keras.step import step_errors

logger = logging.getLogger("tensorflow.trainer")


class ConvertedModel:
    """A model, and what is known of it.

    Attributes:
      adapter: its kind of Keras.
      model: the model itself: its values stay as they are until `to_keras`.
      graph_model: the model that it is the twin of, where that was made without eager execution.
      inputs: the names of its inputs; see `KerasAdapter.inputs`.
      names: what its metrics and outputs are called outside.
      where: names it in messages.
    """

    def __init__(
        self,
        adapter: KerasAdapter,
        model: Any,
        *,
        is_in_checkpoint: bool,
        graph_model: Any = None,
        names: NameMaps | None = None,
    ) -> None:
        """Knows the model.

        Args:
          adapter, model, graph_model, names: see the class.
          is_in_checkpoint: whether there is a checkpoint that its variables start from.
        """
        self.adapter, self.model, self.graph_model = adapter, model, graph_model
        self.names = names or NameMaps()
        with eager_mode():
            self.inputs = adapter.input_names(model)
            outputs = adapter.output_names(model)
        if outputs is not None:
            self.names.check_output_names(list(outputs))
        self.where = f"{adapter.name} model {model.name}"
        self.is_in_checkpoint = is_in_checkpoint
        self._weights: list[variables.CheckpointVariable] | None = None
        self._optimizer = self._compiled.optimizer

    @property
    def is_built(self) -> bool:
        """Whether its variables are there."""
        with eager_mode():
            return bool(self.model.built) and bool(self.model.variables or not self.model.layers)

    def check_compiled(self) -> None:
        """Refuses to train a model with another optimizer than the one it was converted with.

        Raises:
          InvalidSetting: it was compiled anew.
        """
        if self._compiled.optimizer is not self._optimizer:
            raise InvalidSetting(
                f"{self.where} was compiled anew after it became a TPUEstimator, and its "
                f"checkpoints have the state of the optimizer before. Call model_to_tpu_estimator "
                f"again, with another model_dir."
            )

    @property
    def _compiled(self) -> Any:
        """The model that the program has."""
        return self.model if self.graph_model is None else self.graph_model

    def variables(self) -> list[variables.CheckpointVariable]:
        """Its variables, and those of its optimizer."""
        if self._weights is None:
            self._weights = variables.collect_variables(self.adapter, self.model)
        return self._weights

    def initial_values(self) -> dict[str, Any]:
        """What its variables start from, where no checkpoint has them."""
        if self.is_in_checkpoint:
            return {}
        return variables.initial_values(self.adapter, self.model, self.variables())

    def build_from(self, x: Any) -> None:
        """Builds a model that waits for its first batch."""
        if self.is_built:
            return
        with eager_mode():
            zeros = tf.nest.map_structure(
                lambda each: tf.zeros([size or 1 for size in each.shape], each.dtype), x
            )
            try:
                self.adapter.call(self.model, zeros, training=False)
            except step_errors.STEP_ERRORS as error:
                raise step_errors.explain_step_error(error, self.where, {"features": x}) from error
        logger.info("%s: built for its first batch, with new weights", self.where)

    def named_outputs(self, outputs: Any) -> dict[str, Any]:
        """Name → tensor of what the model returns."""
        if isinstance(outputs, dict):
            return {str(name): each for name, each in outputs.items()}
        flat = tf.nest.flatten(outputs)
        with eager_mode():
            names = self.adapter.output_names(self.model)
        if names is None or len(names) != len(flat):
            names = [f"output_{number}" for number in range(1, len(flat) + 1)]
        taken: set[str] = set()
        return {
            variables.make_unique(name, taken): each for name, each in zip(names, flat, strict=True)
        }
