"""The update rules of the optimizers of embedding tables.

They compute new rows from rows that were read; other modules read and write the tables.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer.embedding.optimization_parameters import (
    AdagradParameters,
    AdamParameters,
    FtrlParameters,
    OptimizationParameters,
    StochasticGradientDescentParameters,
)
from trainer.embedding.private_parameters import (
    AdagradMomentumParameters,
    MomentumParameters,
    ProximalAdagradParameters,
    ProximalYogiParameters,
    RMSPropParameters,
)


@dataclass(frozen=True)
class Slot:
    """A slot variable of a table's optimizer, such as a momentum, with the shape of the table."""

    suffix: str
    initial_value: float


class RowOptimizer(ABC):
    """Computes new rows of a table and of the optimizer's slot variables.

    Args:
      clipping_limit: the largest absolute value of a table's entry; None for no limit. If the
        parameters have clip_weight_min or clip_weight_max, these apply instead.
    """

    updates_all_rows = False

    def __init__(self, parameters: OptimizationParameters, clipping_limit: float | None) -> None:
        self.parameters: Any = parameters
        limits = (parameters.clip_weight_min, parameters.clip_weight_max)
        if limits == (None, None) and clipping_limit is not None:
            limits = (-clipping_limit, clipping_limit)
        self._weight_limits = limits

    @property
    @abstractmethod
    def slots(self) -> Sequence[Slot]:
        """The slot variables that a table needs, in the order in which `step` takes their rows."""

    def step(
        self, rows: Any, slots: Sequence[Any], gradients: Any, learning_rate: Any
    ) -> tuple[Any, list[Any]]:
        """Apply gradients to rows of a table, with clipping and weight decay.

        Args:
          rows: the rows of the table, float32 [n, dimension].
          slots: for each slot variable, its rows with the same indices, float32 [n, dimension].
          gradients: the gradients of the rows, float32 [n, dimension].
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
        """Apply gradients without clipping and weight decay."""


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
        # With multiply_linear_by_learning_rate, the stored linear term includes the learning rate
        # as a factor.
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


class _Momentum(RowOptimizer):
    """Gradient descent with momentum: m' = momentum m + g, and w' = w - r m'."""

    slots = (Slot("Momentum", 0.0),)

    def _step(
        self, rows: Any, slots: Sequence[Any], gradients: Any, learning_rate: Any
    ) -> tuple[Any, list[Any]]:
        momentum = self.parameters.momentum
        momenta = momentum * slots[0] + gradients
        change = gradients + momentum * momenta if self.parameters.use_nesterov else momenta
        return rows - learning_rate * change, [momenta]


class _RMSProp(RowOptimizer):
    """RMSProp: s' = rho s + (1 - rho) g^2, m' = momentum m + r g / sqrt(s' + epsilon), w' = w - m'.

    The slot variables are s, the mean of the squared gradients, and m, the momentum.
    Source: TensorFlow's kernel ApplyRMSProp (tensorflow/core/kernels/training_ops.cc).
    """

    slots = (Slot("RMSProp/ms", 0.0), Slot("RMSProp/mom", 0.0))

    def _step(
        self, rows: Any, slots: Sequence[Any], gradients: Any, learning_rate: Any
    ) -> tuple[Any, list[Any]]:
        rho, epsilon = self.parameters.rho, self.parameters.epsilon
        squares = rho * slots[0] + (1 - rho) * gradients * gradients
        scaled = learning_rate * gradients / tf.sqrt(squares + epsilon)
        momenta = self.parameters.momentum * slots[1] + scaled
        return rows - momenta, [squares, momenta]


class _ProximalAdagrad(RowOptimizer):
    """Adagrad with L1 and L2 penalties: a' = a + g^2, s = r / sqrt(a'), w' = shrink(w - s g, s)."""

    @property
    def slots(self) -> Sequence[Slot]:
        return (Slot("ProximalAdagrad", self.parameters.initial_accumulator),)

    def _step(
        self, rows: Any, slots: Sequence[Any], gradients: Any, learning_rate: Any
    ) -> tuple[Any, list[Any]]:
        accumulator = slots[0] + gradients * gradients
        scale = learning_rate / tf.sqrt(accumulator)
        return _shrink(rows - scale * gradients, scale, self.parameters), [accumulator]


class _ProximalYogi(RowOptimizer):
    """Yogi with L1 and L2 penalties, without bias correction."""

    @property
    def slots(self) -> Sequence[Slot]:
        initial = self.parameters.initial_accumulator_value
        return (Slot("ProximalYogi", initial), Slot("ProximalYogi_1", 0.0))

    def _step(
        self, rows: Any, slots: Sequence[Any], gradients: Any, learning_rate: Any
    ) -> tuple[Any, list[Any]]:
        beta1, beta2 = self.parameters.beta1, self.parameters.beta2
        squares = gradients * gradients
        velocities = slots[0] - (1 - beta2) * tf.sign(slots[0] - squares) * squares
        momenta = beta1 * slots[1] + (1 - beta1) * gradients
        scale = learning_rate / (tf.sqrt(velocities) + self.parameters.epsilon)
        return _shrink(rows - scale * momenta, scale, self.parameters), [velocities, momenta]


class _AdagradMomentum(RowOptimizer):
    """Adagrad with a momentum that accumulates the scaling factors of the gradients."""

    slots = (Slot("AdagradMomentum/Accumulator", 0.0), Slot("AdagradMomentum/Momentum", 0.0))

    def _step(
        self, rows: Any, slots: Sequence[Any], gradients: Any, learning_rate: Any
    ) -> tuple[Any, list[Any]]:
        momentum, beta2 = self.parameters.momentum, self.parameters.beta2
        squares = gradients * gradients
        accumulator = slots[0] + squares if beta2 == 1 else beta2 * slots[0] + (1 - beta2) * squares
        scale = tf.pow(accumulator + self.parameters.epsilon, -1 / self.parameters.exponent)
        momenta = momentum * slots[1] + scale
        factor = scale + momentum * momenta if self.parameters.use_nesterov else momenta
        return rows - learning_rate * gradients * factor, [accumulator, momenta]


_OPTIMIZERS: Mapping[type[OptimizationParameters], type[RowOptimizer]] = {
    AdagradMomentumParameters: _AdagradMomentum,
    AdagradParameters: _Adagrad,
    AdamParameters: _Adam,
    FtrlParameters: _Ftrl,
    MomentumParameters: _Momentum,
    ProximalAdagradParameters: _ProximalAdagrad,
    ProximalYogiParameters: _ProximalYogi,
    RMSPropParameters: _RMSProp,
    StochasticGradientDescentParameters: _GradientDescent,
}


def build_optimizer(
    parameters: OptimizationParameters, clipping_limit: float | None
) -> RowOptimizer:
    """Return the optimizer that an OptimizationParameters object chooses.

    The arguments are those of `RowOptimizer`.
    """
    (optimizer,) = (
        optimizer for kind, optimizer in _OPTIMIZERS.items() if isinstance(parameters, kind)
    )
    return optimizer(parameters, clipping_limit)


def _shrink(rows: Any, scale: Any, parameters: Any) -> Any:
    """Apply L1 and L2 penalties to updated rows: sign(w) max(|w| - s l1, 0) / (1 + s l2)."""
    least = scale * parameters.l1_regularization_strength
    shrunk = tf.sign(rows) * tf.maximum(tf.abs(rows) - least, 0.0)
    return shrunk / (1.0 + scale * parameters.l2_regularization_strength)


def _clip(values: Any, least: float | None, most: float | None) -> Any:
    if least is not None:
        values = tf.maximum(values, least)
    return values if most is None else tf.minimum(values, most)
