"""Adds tf.estimator, tf.contrib and other symbols of TensorFlow 1 to TensorFlow's modules."""

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from tpuserve.devices import EMULATION_VARIABLE
from trainer.compat.imports import lazy_module
from trainer.compat.imports.module_proxy import TensorFlow1Proxy
from trainer.compat.source import estimator_names
from trainer.embedding import optimization_parameters

_V1 = "tensorflow.compat.v1"


def register_estimator_modules() -> None:
    """Create tf.estimator and tf.compat.v1.estimator as modules that can be imported."""
    v1_only = {
        name: f"Name tf.compat.v1.estimator.{name}, or run the program with --tf1."
        for name in estimator_names.V1.keys() - estimator_names.V2.keys()
    }
    unsupported = estimator_names.UNSUPPORTED
    lazy_module.register_lazy_modules(
        "tensorflow.estimator",
        "tf.estimator",
        estimator_names.V2,
        {**unsupported, **v1_only},
    )
    lazy_module.register_lazy_modules(
        f"{_V1}.estimator", "tf.estimator", estimator_names.V1, unsupported
    )


def add_names_to_tensorflow(*, replaces_resolver: bool) -> None:
    """Add tf.estimator, tf.contrib and other removed symbols to TensorFlow's own modules.

    The other symbols are the classes for the optimization parameters of TPU embedding tables.

    Args:
      replaces_resolver: whether to replace TensorFlow's TPUClusterResolver by tpuserve's class,
        which selects this machine if the program names no TPU.
    """
    tensorflow: Any = sys.modules["tensorflow"]
    v1, v2 = tensorflow.compat.v1, tensorflow.compat.v2
    contrib = import_contrib()
    # Add the names also to the nested modules tf.compat.v1.compat.v1, tf.compat.v2.compat.v1 and so
    # on, which are module objects of their own.
    for module in (v1, v1.compat.v1, v2.compat.v1):
        module.estimator = sys.modules[f"{_V1}.estimator"]
        module.contrib = contrib
    for module in (tensorflow, v2, v1.compat.v2, v2.compat.v2):
        module.estimator = sys.modules["tensorflow.estimator"]
        module.contrib = contrib
    for name in optimization_parameters.__all__:
        if not hasattr(v1.tpu.experimental, name):
            setattr(v1.tpu.experimental, name, getattr(optimization_parameters, name))
    if replaces_resolver or os.environ.get(EMULATION_VARIABLE):
        # Replace TensorFlow's TPUClusterResolver, which raises an error if the program names no
        # TPU, and which cannot find an emulated TPU.
        cluster_resolver = importlib.import_module("trainer.compat.contrib.cluster_resolver")
        cluster_resolver.replace_tensorflow_resolver()
    # Register tf.compat.v1.tpu and its submodule `experimental` in sys.modules. Otherwise `import
    # tensorflow.compat.v1.tpu` would load second copies, without the added names.
    sys.modules.setdefault(f"{_V1}.tpu", v1.tpu)
    sys.modules.setdefault(f"{_V1}.tpu.experimental", v1.tpu.experimental)


def supply_moved_names() -> None:
    """Restore names that TensorFlow 2 has moved out of tensorflow.python.framework.ops.

    Programs for TensorFlow 1 import names such as Tensor from this module. TensorFlow must be
    imported before this call.
    """
    from trainer.tensorflow_internals import ops

    tensorflow: Any = sys.modules["tensorflow"]
    moved = {
        "IndexedSlices": tensorflow.IndexedSlices,
        "SparseTensor": tensorflow.SparseTensor,
        "Tensor": tensorflow.Tensor,
        "register_tensor_conversion_function": tensorflow.register_tensor_conversion_function,
    }
    for name, value in moved.items():
        if not hasattr(ops, name):
            setattr(ops, name, value)


def enable_tf1() -> TensorFlow1Proxy:
    """Switch TensorFlow to version 1's behaviour, and return a stand-in for the module tensorflow.

    Programs for TensorFlow 1 get the stand-in, which has the symbols of both TensorFlow versions,
    when they import tensorflow.
    """
    from trainer.tensorflow_internals import deprecation

    tensorflow: Any = sys.modules["tensorflow"]
    with deprecation.silence():
        tensorflow.compat.v1.disable_v2_behavior()
    return make_tf1_proxy()


def make_tf1_proxy() -> TensorFlow1Proxy:
    """Return a module with the symbols of TensorFlow 1, but leave TensorFlow's behaviour unchanged.

    TensorFlow must be imported before this call.
    """
    from trainer.tensorflow_internals import module_wrapper, pywrap_tensorflow

    tensorflow: Any = sys.modules["tensorflow"]
    # Suppress the warnings by which TensorFlow advises programs to replace symbols of TensorFlow 1.
    module_wrapper._PER_MODULE_WARNING_LIMIT = 0
    # Supply pywrap_tensorflow.NewCheckpointReader, by which TensorFlow 1 programs read checkpoints.
    pywrap_tensorflow.NewCheckpointReader = tensorflow.compat.v1.train.NewCheckpointReader
    return TensorFlow1Proxy(tensorflow, import_contrib())


def import_contrib() -> ModuleType:
    """Import and return the module that becomes tf.contrib."""
    return importlib.import_module("trainer.compat.contrib")
