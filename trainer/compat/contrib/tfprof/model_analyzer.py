"""tf.contrib.tfprof.model_analyzer: what a graph's parameters and operations come to."""

from typing import Any

from tensorflow.compat.v1.profiler import ProfileOptionBuilder, Profiler, advise, profile

from trainer.compat.contrib_names import missing_names

__all__ = [
    "FLOAT_OPS_OPTIONS",
    "PRINT_ALL_TIMING_MEMORY",
    "Profiler",
    "TRAINABLE_VARS_PARAMS_STAT_OPTIONS",
    "advise",
    "print_model_analysis",
    "profile",
]

FLOAT_OPS_OPTIONS = ProfileOptionBuilder.float_operation()
PRINT_ALL_TIMING_MEMORY = ProfileOptionBuilder.time_and_memory()
TRAINABLE_VARS_PARAMS_STAT_OPTIONS = ProfileOptionBuilder.trainable_variables_parameter()


def print_model_analysis(
    graph: Any,
    run_meta: Any = None,
    op_log: Any = None,
    tfprof_cmd: str = "scope",
    tfprof_options: Any = None,
) -> Any:
    """What tf.compat.v1.profiler.profile finds, which it prints as well.

    Args:
      graph: what is looked at.
      run_meta: a RunMetadata, for times and memory.
      op_log: an OpLogProto.
      tfprof_cmd: "scope", "graph", "code" or "op".
      tfprof_options: one of the options above; the operations by default.
    """
    options = tfprof_options or FLOAT_OPS_OPTIONS
    return profile(graph, run_meta=run_meta, op_log=op_log, cmd=tfprof_cmd, options=options)


__getattr__ = missing_names.getattr_for("tf.contrib.tfprof.model_analyzer", __all__)
