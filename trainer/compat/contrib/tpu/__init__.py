"""tf.contrib.tpu: TPUEstimator and its settings, and TensorFlow's functions for TPUs.

The package `trainer` defines TPUEstimator and the classes of its settings.
"""

from tensorflow.compat.v1.tpu import (
    XLAOptions,
    batch_parallel,
    bfloat16_scope,
    core,
    initialize_system,
    outside_compilation,
    replicate,
    rewrite,
    shard,
    shutdown_system,
)
from tensorflow.compat.v1.tpu.experimental import (
    HardwareFeature,
    TPUSystemMetadata,
    embedding_column,
    shared_embedding_columns,
)
from tensorflow.python.tpu.datasets import StreamingFilesDataset
from tensorflow.python.tpu.device_assignment import DeviceAssignment, device_assignment
from tensorflow.python.tpu.ops.tpu_ops import (
    all_to_all,
    collective_permute,
    infeed_dequeue,
    infeed_dequeue_tuple,
    infeed_enqueue,
    infeed_enqueue_tuple,
    outfeed_dequeue,
    outfeed_dequeue_tuple,
    outfeed_enqueue,
    outfeed_enqueue_tuple,
)
from tensorflow.python.tpu.topology import Topology
from tensorflow.python.tpu.tpu import (
    rewrite_for_inference,
    split_compile_and_replicate,
    split_compile_and_shard,
)
from tensorflow.python.tpu.tpu_feed import InfeedQueue
from tensorflow.python.tpu.tpu_system_metadata import (
    _query_tpu_system_metadata as query_tpu_system_metadata,
)
from tensorflow.python.tpu.training_loop import repeat, while_loop

from trainer.compat import contrib_missing_names
from trainer.compat.contrib.tpu.async_checkpoint import AsyncCheckpointSaverHook
from trainer.config.run_config import InputPipelineConfig, RunConfig, TPUConfig
from trainer.distribution.cross_shard import CrossShardOptimizer, cross_replica_sum
from trainer.distribution.tpu_context import TPUContext
from trainer.embedding.config import EmbeddingConfigSpec, FeatureConfig, TableConfig
from trainer.embedding.optimization_parameters import (
    AdagradParameters,
    AdamParameters,
    FtrlParameters,
    StochasticGradientDescentParameters,
)
from trainer.embedding.private_parameters import AdagradMomentumParameters
from trainer.estimator.in_memory_evaluator import InMemoryEvaluatorHook as TPUInMemoryEvalHook
from trainer.estimator.plain_export import export_estimator_savedmodel
from trainer.estimator.tpu_estimator import TPUEstimator
from trainer.model.spec import TPUEstimatorSpec

__all__ = [
    "AdagradMomentumParameters",
    "AdagradParameters",
    "AdamParameters",
    "AsyncCheckpointSaverHook",
    "CrossShardOptimizer",
    "DeviceAssignment",
    "EmbeddingConfigSpec",
    "FeatureConfig",
    "FtrlParameters",
    "HardwareFeature",
    "InfeedQueue",
    "InputPipelineConfig",
    "RunConfig",
    "StochasticGradientDescentParameters",
    "StreamingFilesDataset",
    "TPUConfig",
    "TPUContext",
    "TPUEstimator",
    "TPUEstimatorSpec",
    "TPUInMemoryEvalHook",
    "TPUSystemMetadata",
    "TableConfig",
    "Topology",
    "XLAOptions",
    "all_to_all",
    "batch_parallel",
    "bfloat16_scope",
    "collective_permute",
    "core",
    "cross_replica_sum",
    "device_assignment",
    "embedding_column",
    "export_estimator_savedmodel",
    "infeed_dequeue",
    "infeed_dequeue_tuple",
    "infeed_enqueue",
    "infeed_enqueue_tuple",
    "initialize_system",
    "outfeed_dequeue",
    "outfeed_dequeue_tuple",
    "outfeed_enqueue",
    "outfeed_enqueue_tuple",
    "outside_compilation",
    "query_tpu_system_metadata",
    "repeat",
    "replicate",
    "rewrite",
    "rewrite_for_inference",
    "shard",
    "shared_embedding_columns",
    "shutdown_system",
    "split_compile_and_replicate",
    "split_compile_and_shard",
    "while_loop",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.tpu", __all__)
