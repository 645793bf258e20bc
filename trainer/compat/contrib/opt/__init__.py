"""tf.contrib.opt: optimizers.

To train on a TPU, wrap an optimizer in tf.compat.v1.tpu.CrossShardOptimizer.
"""

from trainer.compat import contrib_missing_names
from trainer.compat.contrib.opt.adam import AdaMaxOptimizer, LazyAdamOptimizer, NadamOptimizer
from trainer.compat.contrib.opt.lars import LARSOptimizer
from trainer.compat.contrib.opt.moving_average import MovingAverageOptimizer
from trainer.compat.contrib.opt.sign import (
    AddSignOptimizer,
    PowerSignOptimizer,
    get_cosine_decay_fn,
    get_linear_decay_fn,
)
from trainer.compat.contrib.opt.weight_decay import (
    AdamWOptimizer,
    DecoupledWeightDecayExtension,
    MomentumWOptimizer,
    extend_with_decoupled_weight_decay,
)

__all__ = [
    "AdaMaxOptimizer",
    "AdamWOptimizer",
    "AddSignOptimizer",
    "DecoupledWeightDecayExtension",
    "LARSOptimizer",
    "LazyAdamOptimizer",
    "MomentumWOptimizer",
    "MovingAverageOptimizer",
    "NadamOptimizer",
    "PowerSignOptimizer",
    "extend_with_decoupled_weight_decay",
    "get_cosine_decay_fn",
    "get_linear_decay_fn",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.opt", __all__)
