"""tf.contrib.eager: functions of TensorFlow 2, under the names that they had in tf.contrib."""

from tensorflow import (
    GradientTape,
    TensorSpec,
    Variable,
    custom_gradient,
    executing_eagerly,
    function,
    init_scope,
)
from tensorflow import executing_eagerly as in_eager_mode
from tensorflow import function as defun
from tensorflow import py_function as py_func
from tensorflow.compat.v1 import enable_eager_execution, make_template, wrap_function
from tensorflow.compat.v1.train import Checkpoint
from tensorflow.python.eager.backprop import gradients_function
from tensorflow.python.eager.backprop import implicit_grad as implicit_gradients
from tensorflow.python.eager.backprop import (
    implicit_val_and_grad as implicit_value_and_gradients,
)
from tensorflow.python.eager.backprop import (
    val_and_grad_function as value_and_gradients_function,
)
from tensorflow.python.eager.context import (
    ASYNC,
    DEVICE_PLACEMENT_EXPLICIT,
    DEVICE_PLACEMENT_SILENT,
    DEVICE_PLACEMENT_WARN,
    SYNC,
    execution_mode,
    num_gpus,
    set_execution_mode,
)

from trainer.compat import contrib_missing_names

__all__ = [
    "ASYNC",
    "Checkpoint",
    "DEVICE_PLACEMENT_EXPLICIT",
    "DEVICE_PLACEMENT_SILENT",
    "DEVICE_PLACEMENT_WARN",
    "GradientTape",
    "SYNC",
    "TensorSpec",
    "Variable",
    "custom_gradient",
    "defun",
    "enable_eager_execution",
    "executing_eagerly",
    "execution_mode",
    "function",
    "gradients_function",
    "implicit_gradients",
    "implicit_value_and_gradients",
    "in_eager_mode",
    "init_scope",
    "make_template",
    "num_gpus",
    "py_func",
    "set_execution_mode",
    "value_and_gradients_function",
    "wrap_function",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.eager", __all__)
