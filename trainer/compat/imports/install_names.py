"""What a TensorFlow that has been imported gets, so that old programs find their names."""

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from tpuserve.devices import EMULATION_VARIABLE
from trainer.compat import embedding_parameters
from trainer.compat.imports import lazy_module
from trainer.compat.imports.module_proxy import TensorFlow1Proxy
from trainer.compat.source import estimator_names

_V1 = "tensorflow.compat.v1"


def register_estimator_modules() -> None:
    """Makes the modules tf.estimator of both versions, which can be imported from now on."""
    gone = estimator_names.UNSUPPORTED
    only_first = {
        each: f"Name tf.compat.v1.estimator.{each}, or run the program with --tf1."
        for each in estimator_names.V1.keys() - estimator_names.V2.keys()
    }
    lazy_module.register_lazy_modules(
        "tensorflow.estimator", "tf.estimator", estimator_names.V2, {**gone, **only_first}
    )
    lazy_module.register_lazy_modules(f"{_V1}.estimator", "tf.estimator", estimator_names.V1, gone)


def add_names_to_tensorflow() -> None:
    """Puts the names into TensorFlow's own modules."""
    real: Any = sys.modules["tensorflow"]
    v1 = real.compat.v1
    contrib = importlib.import_module("trainer.compat.contrib")
    v1.estimator = sys.modules[f"{_V1}.estimator"]
    v1.contrib = contrib
    for module in (real, real.compat.v2):
        module.estimator = sys.modules["tensorflow.estimator"]
        module.contrib = contrib
    for each in embedding_parameters.__all__:
        if not hasattr(v1.tpu.experimental, each):
            setattr(v1.tpu.experimental, each, getattr(embedding_parameters, each))
    if os.environ.get(EMULATION_VARIABLE):
        # TensorFlow's own looks for a TPU by its name alone, and finds no emulated one.
        importlib.import_module(
            "trainer.compat.contrib.cluster_resolver"
        ).replace_tensorflow_resolver()
    # An import of these by their names would otherwise read their files anew, into other modules.
    sys.modules.setdefault(f"{_V1}.tpu", v1.tpu)
    sys.modules.setdefault(f"{_V1}.tpu.experimental", v1.tpu.experimental)


def enable_tf1() -> TensorFlow1Proxy:
    """TensorFlow 1's behaviour, from now on, and a module with its names."""
    from trainer.tensorflow_internals import deprecation, module_wrapper, pywrap_tensorflow

    real: Any = sys.modules["tensorflow"]
    with deprecation.silence():
        real.compat.v1.disable_v2_behavior()
    # Advice to rename what this program is meant to go on naming.
    module_wrapper._PER_MODULE_WARNING_LIMIT = 0
    # Programs that read checkpoints found it there.
    pywrap_tensorflow.NewCheckpointReader = real.compat.v1.train.NewCheckpointReader
    return TensorFlow1Proxy(real, import_contrib())


def import_contrib() -> ModuleType:
    """What is tf.contrib."""
    return importlib.import_module("trainer.compat.contrib")
