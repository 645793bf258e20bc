"""The four classes of optimizer parameters for TPU embedding tables that TensorFlow 2.15 exports.

A program chooses the optimizer of its embedding tables by creating one of these objects.
"""

from dataclasses import dataclass
from typing import Any

from tpuserve import validation
from tpuserve.errors import InvalidSetting

__all__ = [
    "AdagradParameters",
    "AdamParameters",
    "FtrlParameters",
    "StochasticGradientDescentParameters",
]


class OptimizationParameters:
    """The base class of the parameters of an embedding table's optimizer.

    This class declares no dataclass fields: their order would be the order of the constructor's
    arguments, which differs between the optimizers. So each subclass declares all fields, among
    them the following.

    Attributes:
      use_gradient_accumulation: whether to sum the gradients of a table row over the batches of all
        cores before the optimizer applies them. If not, it applies the sum of each core.
      clip_weight_min: the lower bound of the table's entries (weights); None for no bound.
      clip_weight_max: the upper bound of the weights; None for no bound.
      weight_decay_factor: the fraction of each weight to subtract in each step; None for no decay.
      clip_gradient_min: the lower bound of the gradients; None for no bound.
      clip_gradient_max: the upper bound of the gradients; None for no bound.
    """

    # Declare the attributes for the type checker. They become dataclass fields only in subclasses.
    learning_rate: Any
    use_gradient_accumulation: bool
    clip_weight_min: float | None
    clip_weight_max: float | None
    weight_decay_factor: float | None
    multiply_weight_decay_factor_by_learning_rate: bool | None
    clip_gradient_min: float | None
    clip_gradient_max: float | None

    def __post_init__(self: Any) -> None:
        clips = self.clip_gradient_min is not None or self.clip_gradient_max is not None
        self._require(
            self.use_gradient_accumulation or not clips,
            "use_gradient_accumulation is False, and clip_gradient_min or clip_gradient_max is "
            "set. Clipping needs use_gradient_accumulation=True",
        )

    def _require(self, is_met: bool, problem: str) -> None:
        """Raise InvalidSetting if a condition on the parameters is not met."""
        if not is_met:
            raise InvalidSetting(f"{type(self).__name__}: {problem}.")

    def _check_numbers(self, *names: str, **bounds: Any) -> None:
        """Raise InvalidSetting if the value of a named attribute is not within the bounds."""
        for name in names:
            validation.check_number(f"{type(self).__name__} {name}", getattr(self, name), **bounds)


@dataclass(eq=False)
class AdagradParameters(OptimizationParameters):
    """The parameters of Adagrad.

    Attributes:
      initial_accumulator: the initial value of the sums of squared gradients; greater than 0.
    """

    learning_rate: float
    initial_accumulator: float = 0.1
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_numbers("initial_accumulator", above=0)


@dataclass(eq=False)
class AdamParameters(OptimizationParameters):
    """The parameters of Adam.

    Attributes:
      beta1: the decay rate of the first moments; at least 0 and less than 1.
      beta2: the decay rate of the second moments; at least 0 and less than 1.
      epsilon: the constant that prevents a division by zero; greater than 0.
      lazy_adam: whether to update the moments only of rows that occur in the batch.
      sum_inside_sqrt: whether the update divides by sqrt(v + epsilon^2), where v is the second
        moment, and not by sqrt(v) + epsilon.
    """

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-08
    lazy_adam: bool = True
    sum_inside_sqrt: bool = True
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_numbers("beta1", "beta2", least=0, below=1)
        self._check_numbers("epsilon", above=0)
        self._require(
            self.use_gradient_accumulation or self.lazy_adam,
            "lazy_adam and use_gradient_accumulation are both False; set one of them to True",
        )


@dataclass(eq=False)
class FtrlParameters(OptimizationParameters):
    """The parameters of FTRL ("follow the regularized leader").

    Attributes:
      learning_rate_power: a number p, at most 0. The learning rate is multiplied by the p-th power
        of the accumulated squared gradients.
      initial_accumulator_value: the initial value of the accumulated squares; at least 0.
      initial_linear_value: the initial value of the linear term; always 0.
      l1_regularization_strength: the factor of the L1 penalty; at least 0.
      l2_regularization_strength: the factor of the L2 penalty; at least 0.
      multiply_linear_by_learning_rate: whether to store the linear term multiplied by the learning
        rate.
      beta: the constant that is added to the root of the accumulated squares.
      allow_zero_accumulator: whether the accumulated squares may be 0.
    """

    learning_rate: float
    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    multiply_linear_by_learning_rate: bool = False
    beta: float = 0
    allow_zero_accumulator: bool = False
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.initial_linear_value = 0.0
        self._check_numbers("learning_rate_power", most=0)
        # Accept an initial_accumulator_value of 0 even if allow_zero_accumulator is false, as
        # TensorFlow 2.15 does.
        self._check_numbers(
            "initial_accumulator_value",
            "l1_regularization_strength",
            "l2_regularization_strength",
            least=0,
        )


@dataclass(eq=False)
class StochasticGradientDescentParameters(OptimizationParameters):
    """The parameters of stochastic gradient descent."""

    learning_rate: float
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None
