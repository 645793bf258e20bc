"""tf.contrib.stateless: functions that return random numbers which depend only on a seed."""

from tensorflow.compat.v1.random import stateless_multinomial
from tensorflow.random import (
    stateless_normal as stateless_random_normal,
)
from tensorflow.random import (
    stateless_truncated_normal,
)
from tensorflow.random import (
    stateless_uniform as stateless_random_uniform,
)

from trainer.compat import contrib_missing_names

__all__ = [
    "stateless_multinomial",
    "stateless_random_normal",
    "stateless_random_uniform",
    "stateless_truncated_normal",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.stateless", __all__)
