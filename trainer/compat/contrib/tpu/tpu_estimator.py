"""tf.contrib.tpu.python.tpu.tpu_estimator: TPUEstimator, TPUEstimatorSpec and related names.

This module also replaces tensorflow_estimator.python.estimator.tpu.tpu_estimator.
"""

from tpuserve.export import (
    BatchConfig,
    call_computation,
    inference_on_tpu,
    model_fn_inference_on_tpu,
)
from trainer.compat import contrib_missing_names
from trainer.config.run_config import InputPipelineConfig, RunConfig, TPUConfig
from trainer.distribution.cross_shard import CrossShardOptimizer
from trainer.distribution.tpu_context import TPUContext
from trainer.embedding.config import EmbeddingConfigSpec
from trainer.embedding.optimization_parameters import (
    AdagradParameters,
    AdamParameters,
    FtrlParameters,
    StochasticGradientDescentParameters,
)
from trainer.estimator.plain_export import export_estimator_savedmodel
from trainer.estimator.tpu_estimator import TPUEstimator
from trainer.exporting.strategies import ExportSavedModelApiVersion
from trainer.model.spec import ModeKeys, TPUEstimatorSpec

__all__ = [
    "AdagradParameters",
    "AdamParameters",
    "BatchConfig",
    "CrossShardOptimizer",
    "EmbeddingConfigSpec",
    "ExportSavedModelApiVersion",
    "FtrlParameters",
    "InputPipelineConfig",
    "ModeKeys",
    "RunConfig",
    "StochasticGradientDescentParameters",
    "TPUConfig",
    "TPUContext",
    "TPUEstimator",
    "TPUEstimatorSpec",
    "call_computation",
    "export_estimator_savedmodel",
    "inference_on_tpu",
    "model_fn_inference_on_tpu",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.tpu.python.tpu.tpu_estimator", __all__)
