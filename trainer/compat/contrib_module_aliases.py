"""Tables of the modules inside tf.contrib's packages, and of the modules that replace them.

The module `trainer.compat.contrib.X` replaces tf.contrib.X and has its public names. The tables
list the modules inside of tf.contrib.X that programs import by their full paths, such as
tensorflow.contrib.tpu.python.tpu.tpu_estimator.
"""

from collections.abc import Mapping

_CONTRIB = "trainer.compat.contrib"
_TPU = "tensorflow.python.tpu"

_TPU_MODULES = {
    "async_checkpoint": f"{_CONTRIB}.tpu.async_checkpoint",
    "bfloat16": f"{_TPU}.bfloat16",
    "datasets": f"{_TPU}.datasets",
    "device_assignment": f"{_TPU}.device_assignment",
    "feature_column": f"{_TPU}.feature_column",
    "feature_column_v2": f"{_TPU}.feature_column_v2",
    "functional": f"{_TPU}.functional",
    "topology": f"{_TPU}.topology",
    "tpu": f"{_TPU}.tpu",
    "tpu_config": f"{_CONTRIB}.tpu.tpu_config",
    "tpu_context": f"{_CONTRIB}.tpu.tpu_context",
    "tpu_embedding": f"{_CONTRIB}.tpu.tpu_embedding",
    "tpu_estimator": f"{_CONTRIB}.tpu.tpu_estimator",
    "tpu_feed": f"{_TPU}.tpu_feed",
    "tpu_function": f"{_TPU}.tpu_function",
    "tpu_optimizer": f"{_CONTRIB}.tpu.tpu_optimizer",
    "tpu_sharding": f"{_TPU}.tpu_sharding",
    "tpu_system_metadata": f"{_TPU}.tpu_system_metadata",
    "training_loop": f"{_TPU}.training_loop",
}

_NETS = (
    "alexnet",
    "inception",
    "inception_v1",
    "inception_v2",
    "inception_v3",
    "overfeat",
    "resnet_utils",
    "resnet_v1",
    "resnet_v2",
    "vgg",
)

_METRIC_LEARNING = "tf_slim.losses.metric_learning"

_DATA_MODULES = (
    "batching",
    "counter",
    "enumerate_ops",
    "error_ops",
    "get_single_element",
    "grouping",
    "interleave_ops",
    "parsing_ops",
    "prefetching_ops",
    "random_ops",
    "readers",
    "resampling",
    "scan_ops",
    "shuffle_ops",
    "sliding",
    "unique",
    "writers",
)

# Maps a module of tf.contrib, such as "eager", to the inner modules that defined the module's names
# in TensorFlow 1, such as "python.tfe" for tensorflow.contrib.eager.python.tfe.
_INNER_MODULES: Mapping[str, tuple[str, ...]] = {
    "cluster_resolver": (
        "python.training.cluster_resolver",
        "python.training.tpu_cluster_resolver",
    ),
    "compiler.jit": ("",),
    "compiler.xla": ("",),
    "data": tuple(f"python.ops.{module}" for module in _DATA_MODULES),
    "eager": ("python.tfe",),
    "estimator": tuple(
        f"python.estimator.{module}"
        for module in (
            "dnn",
            "dnn_linear_combined",
            "early_stopping",
            "export",
            "extenders",
            "head",
            "hooks",
            "linear",
            "logit_fns",
            "multi_head",
            "replicate_model_fn",
            "rnn",
        )
    ),
    "factorization": ("python.ops.kmeans",),
    "framework": (
        "python.framework.checkpoint_utils",
        "python.framework.tensor_util",
        "python.ops.arg_scope",
        "python.ops.ops",
        "python.ops.variables",
    ),
    "image": ("python.ops.image_ops",),
    "layers": (
        "python.layers.initializers",
        "python.layers.layers",
        "python.layers.normalization",
        "python.layers.optimizers",
        "python.layers.regularizers",
        "python.layers.summaries",
    ),
    "lookup": ("lookup_ops",),
    "losses": ("python.losses.loss_ops",),
    "metrics": ("python.ops.metric_ops",),
    "opt": tuple(
        f"python.training.{module}"
        for module in (
            "adamax",
            "addsign",
            "lars_optimizer",
            "lazy_adam_optimizer",
            "moving_average_optimizer",
            "nadam_optimizer",
            "powersign",
            "sign_decay",
            "weight_decay_optimizers",
        )
    ),
    "predictor": ("predictor", "predictor_factories", "saved_model_predictor"),
    "cudnn_rnn": ("python.layers.cudnn_rnn", "python.ops.cudnn_rnn_ops"),
    "rnn": tuple(
        f"python.ops.{module}"
        for module in (
            "core_rnn_cell",
            "fused_rnn_cell",
            "gru_ops",
            "lstm_ops",
            "rnn",
            "rnn_cell",
        )
    ),
    "seq2seq": ("python.ops.loss",),
    "slim": ("python.slim",),
    "slim.learning": ("",),
    "slim.nets": ("",),
    "slim.dataset": ("",),
    "slim.dataset_data_provider": ("",),
    "slim.parallel_reader": ("",),
    "slim.prefetch_queue": ("",),
    "slim.tfexample_decoder": ("",),
    "summary": ("summary", "summary_ops"),
    "tfprof.model_analyzer": ("",),
    "training": (
        "python.training.evaluation",
        "python.training.hparam",
        "python.training.training",
    ),
}

# Maps the path of a module below tensorflow.contrib to the full name of the replacing module.
MODULE_ALIASES: Mapping[str, str] = {
    **{f"tpu.python.tpu.{inner}": module for inner, module in _TPU_MODULES.items()},
    "tpu.python.ops.tpu_ops": f"{_TPU}.ops.tpu_ops",
    "layers.python.layers.utils": f"{_CONTRIB}.slim.named_outputs",
    "losses.metric_learning": _METRIC_LEARNING,
    "losses.python.metric_learning": _METRIC_LEARNING,
    "losses.python.metric_learning.metric_loss_ops": _METRIC_LEARNING,
    "quantize.python.graph_matcher": "trainer.compat.graph_matcher",
    "slim.python.slim.learning": f"{_CONTRIB}.slim.learning",
    "slim.python.slim.nets": f"{_CONTRIB}.slim.nets",
    **{
        f"{package}.{net}": f"{_CONTRIB}.slim.nets.{net}"
        for package in ("slim.nets", "slim.python.slim.nets")
        for net in _NETS
    },
    "tensorboard.plugins.projector": "tensorboard.plugins.projector",
    "slim.data_provider": f"{_CONTRIB}.slim.dataset_data_provider",
    **{
        f"slim.python.slim.data.{inner}": f"{_CONTRIB}.slim.{module}"
        for inner, module in {
            "data_provider": "dataset_data_provider",
            "dataset": "dataset",
            "dataset_data_provider": "dataset_data_provider",
            "parallel_reader": "parallel_reader",
            "prefetch_queue": "prefetch_queue",
            "tfexample_decoder": "tfexample_decoder",
        }.items()
    },
    "framework.python.ops.audio_ops": "tensorflow.python.ops.gen_audio_ops",
    "framework.python.ops.checkpoint_ops": "tensorflow.python.training.checkpoint_ops",
    "framework.python.ops.critical_section_ops": "tensorflow.python.ops.critical_section_ops",
    "framework.python.ops.script_ops": "tensorflow.python.ops.script_ops",
    "framework.python.ops.sort_ops": "tensorflow.python.ops.sort_ops",
    **{
        f"{module}.{inner}".rstrip("."): f"{_CONTRIB}.{module}"
        for module, inner_modules in _INNER_MODULES.items()
        for inner in inner_modules
    },
}

# Maps the path of a package below tensorflow.contrib to a module. The public names of this module
# are attributes of the package too.
PACKAGE_EXPORTS: Mapping[str, str] = {
    "framework.python.framework": f"{_CONTRIB}.framework",
    "framework.python.ops": f"{_CONTRIB}.framework",
    "layers.python.layers": f"{_CONTRIB}.layers",
    "losses.python.losses": f"{_CONTRIB}.losses",
}


def find_needed_package(module: str) -> str | None:
    """Return the package that has a replacing module, if tpuserve and TensorFlow do not have it.

    Args:
      module: full name of the replacing module.
    """
    if f"{module}.".startswith(f"{_CONTRIB}.slim.nets."):
        return "tf_slim"
    root = module.partition(".")[0]
    return None if root in ("tensorflow", "tensorflow_estimator", "trainer") else root
