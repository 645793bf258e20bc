"""How the tables of embeddings on a TPU are trained: the four classes that TensorFlow has dropped.

Names, arguments, their order, defaults and attributes are those of tf.compat.v1.tpu.experimental in
TensorFlow 2.15. Programs make them before they know whether they have a TPU.
"""

from tpuserve.errors import InvalidSetting

__all__ = [
    "AdagradParameters",
    "AdamParameters",
    "FtrlParameters",
    "StochasticGradientDescentParameters",
]


class _Parameters:
    """What the four have in common.

    Attributes:
      learning_rate: the step size; a number, or a function of the step.
      use_gradient_accumulation: add up a row's gradients of one batch before they are applied.
      clip_weight_min, clip_weight_max: what weights are held between; None for no bound.
      weight_decay_factor: how much of a weight each step takes away; None for nothing.
      multiply_weight_decay_factor_by_learning_rate: that the decay goes with the learning rate.
      clip_gradient_min, clip_gradient_max: what gradients are held between; None for no bound.
    """

    def __init__(
        self,
        learning_rate: float,
        use_gradient_accumulation: bool,
        clip_weight_min: float | None,
        clip_weight_max: float | None,
        weight_decay_factor: float | None,
        multiply_weight_decay_factor_by_learning_rate: bool | None,
        clip_gradient_min: float | None,
        clip_gradient_max: float | None,
    ) -> None:
        self.learning_rate = learning_rate
        self.use_gradient_accumulation = use_gradient_accumulation
        self.clip_weight_min = clip_weight_min
        self.clip_weight_max = clip_weight_max
        self.weight_decay_factor = weight_decay_factor
        self.multiply_weight_decay_factor_by_learning_rate = (
            multiply_weight_decay_factor_by_learning_rate
        )
        self.clip_gradient_min = clip_gradient_min
        self.clip_gradient_max = clip_gradient_max
        clips = clip_gradient_min is not None or clip_gradient_max is not None
        self._demand(
            use_gradient_accumulation or not clips,
            "use_gradient_accumulation is False and gradients are clipped: clipping needs it to be "
            "True",
        )

    def _demand(self, is_met: bool, otherwise: str) -> None:
        if not is_met:
            raise InvalidSetting(f"{type(self).__name__}: {otherwise}.")

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"


class AdagradParameters(_Parameters):
    """Adagrad.

    Attributes:
      initial_accumulator: where the sums of squared gradients start; above 0.
    """

    def __init__(
        self,
        learning_rate: float,
        initial_accumulator: float = 0.1,
        use_gradient_accumulation: bool = True,
        clip_weight_min: float | None = None,
        clip_weight_max: float | None = None,
        weight_decay_factor: float | None = None,
        multiply_weight_decay_factor_by_learning_rate: bool | None = None,
        clip_gradient_min: float | None = None,
        clip_gradient_max: float | None = None,
    ) -> None:
        super().__init__(
            learning_rate,
            use_gradient_accumulation,
            clip_weight_min,
            clip_weight_max,
            weight_decay_factor,
            multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min,
            clip_gradient_max,
        )
        self._demand(
            initial_accumulator > 0,
            f"initial_accumulator is {initial_accumulator}; it must be positive",
        )
        self.initial_accumulator = initial_accumulator


class AdamParameters(_Parameters):
    """Adam.

    Attributes:
      beta1, beta2: how much of the moments each step keeps; from 0, below 1.
      epsilon: what keeps the division from one by zero; above 0.
      lazy_adam: leave the moments of rows that a batch has not as they are.
      sum_inside_sqrt: add epsilon before the root is taken.
    """

    def __init__(
        self,
        learning_rate: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-08,
        lazy_adam: bool = True,
        sum_inside_sqrt: bool = True,
        use_gradient_accumulation: bool = True,
        clip_weight_min: float | None = None,
        clip_weight_max: float | None = None,
        weight_decay_factor: float | None = None,
        multiply_weight_decay_factor_by_learning_rate: bool | None = None,
        clip_gradient_min: float | None = None,
        clip_gradient_max: float | None = None,
    ) -> None:
        super().__init__(
            learning_rate,
            use_gradient_accumulation,
            clip_weight_min,
            clip_weight_max,
            weight_decay_factor,
            multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min,
            clip_gradient_max,
        )
        self._demand(0 <= beta1 < 1, f"beta1 is {beta1}; it must be from 0, and below 1")
        self._demand(0 <= beta2 < 1, f"beta2 is {beta2}; it must be from 0, and below 1")
        self._demand(epsilon > 0, f"epsilon is {epsilon}; it must be positive")
        self._demand(
            use_gradient_accumulation or lazy_adam,
            "lazy_adam and use_gradient_accumulation are both False; one must be True",
        )
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lazy_adam = lazy_adam
        self.sum_inside_sqrt = sum_inside_sqrt


class FtrlParameters(_Parameters):
    """Follow the regularised leader.

    Attributes:
      learning_rate_power: of the accumulated squares; at most 0.
      initial_accumulator_value: where the accumulated squares start; at least 0.
      initial_linear_value: where the linear term starts: 0.
      l1_regularization_strength, l2_regularization_strength: at least 0.
      multiply_linear_by_learning_rate: keep the linear term times the learning rate.
      beta: added to the root of the accumulated squares.
      allow_zero_accumulator: let accumulated squares be 0.
    """

    def __init__(
        self,
        learning_rate: float,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_gradient_accumulation: bool = True,
        clip_weight_min: float | None = None,
        clip_weight_max: float | None = None,
        weight_decay_factor: float | None = None,
        multiply_weight_decay_factor_by_learning_rate: bool | None = None,
        multiply_linear_by_learning_rate: bool = False,
        beta: float = 0,
        allow_zero_accumulator: bool = False,
        clip_gradient_min: float | None = None,
        clip_gradient_max: float | None = None,
    ) -> None:
        super().__init__(
            learning_rate,
            use_gradient_accumulation,
            clip_weight_min,
            clip_weight_max,
            weight_decay_factor,
            multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min,
            clip_gradient_max,
        )
        self._demand(
            learning_rate_power <= 0,
            f"learning_rate_power is {learning_rate_power}; it must be 0 or less",
        )
        # 0 is taken without allow_zero_accumulator too, as TensorFlow 2.15 does.
        for name, value in (
            ("initial_accumulator_value", initial_accumulator_value),
            ("l1_regularization_strength", l1_regularization_strength),
            ("l2_regularization_strength", l2_regularization_strength),
        ):
            self._demand(value >= 0, f"{name} is {value}; it must be at least 0")
        self.learning_rate_power = learning_rate_power
        self.initial_accumulator_value = initial_accumulator_value
        self.initial_linear_value = 0.0
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength
        self.multiply_linear_by_learning_rate = multiply_linear_by_learning_rate
        self.beta = beta
        self.allow_zero_accumulator = allow_zero_accumulator


class StochasticGradientDescentParameters(_Parameters):
    """Plain gradient descent."""

    def __init__(
        self,
        learning_rate: float,
        use_gradient_accumulation: bool = True,
        clip_weight_min: float | None = None,
        clip_weight_max: float | None = None,
        weight_decay_factor: float | None = None,
        multiply_weight_decay_factor_by_learning_rate: bool | None = None,
        clip_gradient_min: float | None = None,
        clip_gradient_max: float | None = None,
    ) -> None:
        super().__init__(
            learning_rate,
            use_gradient_accumulation,
            clip_weight_min,
            clip_weight_max,
            weight_decay_factor,
            multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min,
            clip_gradient_max,
        )
