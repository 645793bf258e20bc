"""tf.contrib.tpu.python.tpu.tpu_embedding: classes for the settings of embedding tables.

This module also replaces tensorflow.python.tpu.tpu_embedding, which TensorFlow has removed.
"""

from trainer.compat import contrib_missing_names
from trainer.embedding.config import FeatureConfig, TableConfig
from trainer.embedding.optimization_parameters import (
    AdagradParameters,
    AdamParameters,
    FtrlParameters,
    StochasticGradientDescentParameters,
)
from trainer.embedding.private_parameters import (
    AdagradMomentumParameters,
    MomentumParameters,
    ProximalAdagradParameters,
    ProximalYogiParameters,
    RMSPropParameters,
)

__all__ = [
    "AdagradMomentumParameters",
    "AdagradParameters",
    "AdamParameters",
    "FeatureConfig",
    "FtrlParameters",
    "MomentumParameters",
    "ProximalAdagradParameters",
    "ProximalYogiParameters",
    "RMSPropParameters",
    "StochasticGradientDescentParameters",
    "TableConfig",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.tpu.python.tpu.tpu_embedding", __all__)
