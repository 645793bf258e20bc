"""The arithmetic of the optimizers of embedding tables, on rows that have been read.

The formulas are those of TensorFlow's optimization_parameters.proto for TPU embeddings: Adam has no
bias correction, and clipping and weight decay apply only to the rows that an update changes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer.embedding.optimization_parameters import (
    AdagradParameters,
    AdamParameters,
    FtrlParameters,
    OptimizationParameters,
)


@dataclass(frozen=True)
class Slot:
    """A variable of a table's optimizer, with the shape of the table.

    Attributes:
      suffix: the end of the slot's name, which is "<name of the table's variable>/<suffix>".
      initial_value: the initial value of all entries.
    """

    suffix: str
    initial_value: float


class RowOptimizer(ABC):
    """Computes new rows of a table and of its slots.

    Attributes:
      parameters: the parameters of the optimizer.
      updates_all_rows: whether an update also changes rows whose ids are not in the batch.
    """

    updates_all_rows = False

    def __init__(self, parameters: OptimizationParameters, clipping_limit: float | None) -> None:
        """Create an optimizer.

        Args:
          parameters: the parameters of the optimizer.
          clipping_limit: the largest absolute value of the rows' entries, unless the parameters
            have limits; None for no limit.
        """
        self.parameters: Any = parameters
        limits = (parameters.clip_weight_min, parameters.clip_weight_max)
        if limits == (None, None) and clipping_limit is not None:
            limits = (-clipping_limit, clipping_limit)
        self._weight_limits = limits

    @property
    @abstractmethod
    def slots(self) -> Sequence[Slot]:
        """The slots of each table, in the order in which `step` takes them."""

    def step(
        self, rows: Any, slots: Sequence[Any], gradients: Any, learning_rate: Any
    ) -> tuple[Any, list[Any]]:
        """Return the new rows, and the new rows of the slots.

        Args:
          rows: float32 [n, dimension].
          slots: the rows of the slots, each float32 [n, dimension].
          gradients: float32 [n, dimension].
          learning_rate: float32 [].
        """
        parameters = self.parameters
        gradients = _clip(gradients, parameters.clip_gradient_min, parameters.clip_gradient_max)
        if parameters.weight_decay_factor:
            decay = parameters.weight_decay_factor
            if parameters.multiply_weight_decay_factor_by_learning_rate:
                decay = decay * learning_rate
            rows = rows - decay * rows
        rows, new_slots = self._step(rows, slots, gradients, learning_rate)
        return _clip(rows, *self._weight_limits), new_slots

    @abstractmethod
    def _step(
        self, rows: Any, slots: Sequence[Any], gradients: Any, learning_rate: Any
    ) -> tuple[Any, list[Any]]:
        """Return new rows and slots; see `step`."""


class _GradientDescent(RowOptimizer):
    slots = ()

    def _step(
        self, rows: Any, slots: Sequence[Any], gradients: Any, learning_rate: Any
    ) -> tuple[Any, list[Any]]:
        return rows - learning_rate * gradients, []


class _Adagrad(RowOptimizer):
    @property
    def slots(self) -> Sequence[Slot]:
        return (Slot("Adagrad", self.parameters.initial_accumulator),)

    def _step(
        self, rows: Any, slots: Sequence[Any], gradients: Any, learning_rate: Any
    ) -> tuple[Any, list[Any]]:
        accumulator = slots[0] + gradients * gradients
        return rows - learning_rate * gradients / tf.sqrt(accumulator), [accumulator]


class _Adam(RowOptimizer):
    slots = (Slot("Adam/m", 0.0), Slot("Adam/v", 0.0))

    def __init__(self, parameters: AdamParameters, clipping_limit: float | None) -> None:
        super().__init__(parameters, clipping_limit)
        self.updates_all_rows = not parameters.lazy_adam

    def _step(
        self, rows: Any, slots: Sequence[Any], gradients: Any, learning_rate: Any
    ) -> tuple[Any, list[Any]]:
        beta1, beta2 = self.parameters.beta1, self.parameters.beta2
        epsilon = self.parameters.epsilon
        momenta = beta1 * slots[0] + (1 - beta1) * gradients
        velocities = beta2 * slots[1] + (1 - beta2) * gradients * gradients
        if self.parameters.sum_inside_sqrt:
            divisor = tf.sqrt(velocities + epsilon**2)
        else:
            divisor = tf.sqrt(velocities) + epsilon
        return rows - learning_rate * momenta / divisor, [momenta, velocities]


class _Ftrl(RowOptimizer):
    @property
    def slots(self) -> Sequence[Slot]:
        initial = self.parameters
        return (
            Slot("Ftrl", initial.initial_accumulator_value),
            Slot("Ftrl_1", initial.initial_linear_value),
        )

    def _step(
        self, rows: Any, slots: Sequence[Any], gradients: Any, learning_rate: Any
    ) -> tuple[Any, list[Any]]:
        parameters = self.parameters
        accumulator = slots[0] + gradients * gradients
        powers = [self._power(slots[0]), self._power(accumulator)]
        # With multiply_linear_by_learning_rate, the linear term is stored multiplied by the
        # learning rate. So multiply all other terms by it too; then no term is divided by a rate of
        # 0.
        if parameters.multiply_linear_by_learning_rate:
            factor, divisor = learning_rate, tf.ones([])
        else:
            factor, divisor = tf.ones([]), learning_rate
        linear = slots[1] + factor * gradients - (powers[1] - powers[0]) / divisor * rows
        quadratic = (powers[1] + parameters.beta) / divisor + (
            2 * parameters.l2_regularization_strength * factor
        )
        limit = parameters.l1_regularization_strength * factor
        pulled = tf.clip_by_value(linear, -limit, limit) - linear
        return tf.math.divide_no_nan(pulled, quadratic), [accumulator, linear]

    def _power(self, accumulator: Any) -> Any:
        exponent = -self.parameters.learning_rate_power
        return tf.sqrt(accumulator) if exponent == 0.5 else tf.pow(accumulator, exponent)


def build_optimizer(
    parameters: OptimizationParameters, clipping_limit: float | None
) -> RowOptimizer:
    """Return the optimizer for some parameters; see `RowOptimizer` for the arguments."""
    if isinstance(parameters, AdagradParameters):
        return _Adagrad(parameters, clipping_limit)
    if isinstance(parameters, AdamParameters):
        return _Adam(parameters, clipping_limit)
    if isinstance(parameters, FtrlParameters):
        return _Ftrl(parameters, clipping_limit)
    return _GradientDescent(parameters, clipping_limit)


def _clip(values: Any, least: float | None, most: float | None) -> Any:
    if least is not None:
        values = tf.maximum(values, least)
    return values if most is None else tf.minimum(values, most)
