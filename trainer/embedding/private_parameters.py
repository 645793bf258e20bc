"""Classes of optimizer parameters for TPU embedding tables that TensorFlow 2.15 does not export.

TensorFlow has them in tensorflow/python/tpu/tpu_embedding.py, and not in
tf.compat.v1.tpu.experimental. The names, the arguments with their order and defaults, and the
attributes are the same here.
"""

from dataclasses import dataclass

from trainer.embedding.optimization_parameters import OptimizationParameters

__all__ = [
    "AdagradMomentumParameters",
    "MomentumParameters",
    "ProximalAdagradParameters",
    "ProximalYogiParameters",
    "RMSPropParameters",
]


@dataclass(eq=False)
class AdagradMomentumParameters(OptimizationParameters):
    """The parameters of Adagrad with momentum.

    Attributes:
      exponent: the n of the n-th root of the accumulated squared gradients; greater than 0.
      beta2: the decay rate of the accumulated squared gradients; 1 for a sum without decay.
      epsilon: the constant that is added to the accumulated squared gradients; greater than 0.
    """

    learning_rate: float
    momentum: float
    use_nesterov: bool = False
    exponent: float = 2
    beta2: float = 1
    epsilon: float = 1e-10
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_numbers("epsilon", "exponent", above=0)


@dataclass(eq=False)
class MomentumParameters(OptimizationParameters):
    """The parameters of gradient descent with momentum.

    Attributes:
      momentum: the decay rate of the momentum, which sums the gradients.
    """

    learning_rate: float
    momentum: float
    use_nesterov: bool = False
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None


@dataclass(eq=False)
class ProximalAdagradParameters(OptimizationParameters):
    """The parameters of Adagrad with L1 and L2 penalties.

    Attributes:
      initial_accumulator: the initial value of the sums of squared gradients; greater than 0.
      l1_regularization_strength: the factor of the L1 penalty; at least 0.
      l2_regularization_strength: the factor of the L2 penalty; at least 0.
    """

    learning_rate: float
    initial_accumulator: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
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
        self._check_numbers("l1_regularization_strength", "l2_regularization_strength", least=0)


@dataclass(eq=False)
class ProximalYogiParameters(OptimizationParameters):
    """The parameters of Yogi with L1 and L2 penalties.

    Attributes:
      beta1: the decay rate of the first moments; at least 0 and less than 1.
      beta2: the decay rate of the second moments; at least 0 and less than 1.
      epsilon: the constant that is added to the root of the second moments; greater than 0.
      l1_regularization_strength: the factor of the L1 penalty; at least 0.
      l2_regularization_strength: the factor of the L2 penalty; at least 0.
      initial_accumulator_value: the initial value of the second moments; at least 0.
    """

    learning_rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-3
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    initial_accumulator_value: float = 1e-6
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
        self._check_numbers(
            "l1_regularization_strength",
            "l2_regularization_strength",
            "initial_accumulator_value",
            least=0,
        )


@dataclass(eq=False)
class RMSPropParameters(OptimizationParameters):
    """The parameters of RMSProp.

    Attributes:
      rho: the decay rate of the mean squared gradients.
      momentum: the decay rate of the momentum, which sums the updates.
      epsilon: the constant that is added to the mean squared gradients.
    """

    learning_rate: float
    rho: float
    momentum: float
    epsilon: float
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None
