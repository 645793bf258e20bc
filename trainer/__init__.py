"""The TPUEstimator API on today's TensorFlow.

TensorFlow is imported when the first name is used, so that `import trainer` costs nothing to
those who only look, and so that legacy Keras, which tf.compat.v1.layers needs, is chosen first.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow.python.saved_model.model_utils.export_output import (
        ClassificationOutput,
        PredictOutput,
        RegressionOutput,
    )

    from trainer.config import RunConfig, TPUConfig
    from trainer.cross_shard import CrossShardOptimizer
    from trainer.estimator import TPUEstimator
    from trainer.receivers import (
        ServingInputReceiver,
        build_parsing_serving_input_receiver_fn,
        build_raw_serving_input_receiver_fn,
    )
    from trainer.spec import ModeKeys, TPUEstimatorSpec

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

_HOMES = {
    "ClassificationOutput": "trainer.export",
    "CrossShardOptimizer": "trainer.cross_shard",
    "ModeKeys": "trainer.spec",
    "PredictOutput": "trainer.export",
    "RegressionOutput": "trainer.export",
    "RunConfig": "trainer.config",
    "ServingInputReceiver": "trainer.receivers",
    "TPUConfig": "trainer.config",
    "TPUEstimator": "trainer.estimator",
    "TPUEstimatorSpec": "trainer.spec",
    "build_parsing_serving_input_receiver_fn": "trainer.receivers",
    "build_raw_serving_input_receiver_fn": "trainer.receivers",
}

__all__ = [
    "ClassificationOutput",
    "CrossShardOptimizer",
    "ModeKeys",
    "PredictOutput",
    "RegressionOutput",
    "RunConfig",
    "ServingInputReceiver",
    "TPUConfig",
    "TPUEstimator",
    "TPUEstimatorSpec",
    "build_parsing_serving_input_receiver_fn",
    "build_raw_serving_input_receiver_fn",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainer' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
