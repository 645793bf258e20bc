"""The module tpu_estimator of tf.contrib.tpu.python.tpu and of tensorflow_estimator."""

from tpuserve.export import (
    BatchConfig,
    call_computation,
    inference_on_tpu,
    model_fn_inference_on_tpu,
)
from trainer.compat.contrib import absence
from trainer.config import InputPipelineConfig, RunConfig, TPUConfig
from trainer.cross_shard import CrossShardOptimizer
from trainer.estimator_export import export_estimator_savedmodel
from trainer.export_versions import ExportSavedModelApiVersion
from trainer.spec import ModeKeys, TPUEstimatorSpec
from trainer.tpu_context import TPUContext
from trainer.tpu_estimator import TPUEstimator

__all__ = [
    "BatchConfig",
    "CrossShardOptimizer",
    "ExportSavedModelApiVersion",
    "InputPipelineConfig",
    "ModeKeys",
    "RunConfig",
    "TPUConfig",
    "TPUContext",
    "TPUEstimator",
    "TPUEstimatorSpec",
    "call_computation",
    "export_estimator_savedmodel",
    "inference_on_tpu",
    "model_fn_inference_on_tpu",
]

__getattr__ = absence.of("tf.contrib.tpu.python.tpu.tpu_estimator", __all__)
