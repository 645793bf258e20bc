"""A Keras model that is being run as an estimator."""

import logging
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.keras.model import weights
from trainer.keras.model.adapter import Family
from trainer.keras.model.names import Names
from trainer.keras.model.tracing import eagerly
from trainer.keras.step import step_errors

logger = logging.getLogger("tensorflow.trainer")


class Converted:
    """A model, and what is known of it.

    Attributes:
      family: its kind of Keras.
      model: the model itself: its values stay as they are until `to_keras`.
      of_graph: the model that it is the twin of, where that was made without eager execution.
      inputs: the names of its inputs; see `Family.inputs`.
      names: what its metrics and outputs are called outside.
      where: names it in messages.
    """

    def __init__(
        self,
        family: Family,
        model: Any,
        *,
        is_in_checkpoint: bool,
        of_graph: Any = None,
        names: Names | None = None,
    ) -> None:
        """Knows the model.

        Args:
          family, model, of_graph, names: see the class.
          is_in_checkpoint: whether there is a checkpoint that its variables start from.
        """
        self.family, self.model, self.of_graph = family, model, of_graph
        self.names = names or Names()
        with eagerly():
            self.inputs = family.inputs(model)
            outputs = family.output_names(model)
        if outputs is not None:
            self.names.check_outputs(list(outputs))
        self.where = f"{family.name} model {model.name}"
        self.is_in_checkpoint = is_in_checkpoint
        self._weights: list[weights.Weight] | None = None
        self._optimizer = self._compiled.optimizer

    @property
    def is_built(self) -> bool:
        """Whether its variables are there."""
        with eagerly():
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
        return self.model if self.of_graph is None else self.of_graph

    def weights(self) -> list[weights.Weight]:
        """Its variables, and those of its optimizer."""
        if self._weights is None:
            self._weights = weights.of_model(self.family, self.model)
        return self._weights

    def initial_values(self) -> dict[str, Any]:
        """What its variables start from, where no checkpoint has them."""
        if self.is_in_checkpoint:
            return {}
        return weights.values(self.family, self.model, self.weights())

    def build_from(self, x: Any) -> None:
        """Builds a model that waits for its first batch."""
        if self.is_built:
            return
        with eagerly():
            zeros = tf.nest.map_structure(
                lambda each: tf.zeros([size or 1 for size in each.shape], each.dtype), x
            )
            try:
                self.family.call(self.model, zeros, training=False)
            except step_errors.ERRORS as error:
                raise step_errors.explained(error, self.where, {"features": x}) from error
        logger.info("%s: built for its first batch, with new weights", self.where)

    def named_outputs(self, outputs: Any) -> dict[str, Any]:
        """Name → tensor of what the model returns."""
        if isinstance(outputs, dict):
            return {str(name): each for name, each in outputs.items()}
        flat = tf.nest.flatten(outputs)
        with eagerly():
            names = self.family.output_names(self.model)
        if names is None or len(names) != len(flat):
            names = [f"output_{number}" for number in range(1, len(flat) + 1)]
        taken: set[str] = set()
        return {weights.unique(name, taken): each for name, each in zip(names, flat, strict=True)}
